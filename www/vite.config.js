import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import javascript from 'highlight.js/lib/languages/javascript';
import { defineConfig } from 'vite';

hljs.registerLanguage('javascript', javascript);
hljs.registerLanguage('bash', bash);

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

// All that the page needs: its own files, and WebAssembly. Nothing may be fetched, framed or sent.
export const CSP = [
  "default-src 'none'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "style-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

const headers = (policy) => ({
  'content-security-policy': `${policy}; frame-ancestors 'none'`,
  'cross-origin-opener-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
});

/** The policy in the page itself, for servers that send none. While developing, Vite's own socket needs more. */
const policy = {
  name: 'policy',
  apply: 'build',
  transformIndexHtml: () => [{ tag: 'meta', attrs: { 'http-equiv': 'Content-Security-Policy', content: CSP }, injectTo: 'head-prepend' }],
};

const shown = (text, language = 'javascript') => ({ text, html: hljs.highlight(text, { language }).value });

/** Splits a module into its exported functions and constants, each as it stands there. */
function parts(source) {
  const found = {};
  for (const [text, name] of source.matchAll(/^export (?:async function|function|const) (\w+)[\s\S]*?^\}?\)?;?$/gm)) {
    found[name] = shown(text.replace(/^export /, '').trim());
  }
  return found;
}

/**
 * The code beside the controls, highlighted while the page is built. `./run.js?shown` gives the functions of the module
 * as text, so that what is shown is what runs; `virtual:facts` gives the sizes, the policy and the quick start.
 */
const code = {
  name: 'code',
  resolveId: (id) => (id === 'virtual:facts' ? '\0facts' : undefined),
  load(id) {
    if (id === '\0facts') {
      const { version, wasm, bundled } = JSON.parse(readFileSync(here('../bindings-js/dist/sizes.json'), 'utf8'));
      const facts = {
        version,
        size: wasm.brotli + bundled.brotli,
        policy: CSP,
        start: shown(readFileSync(here('src/start.js'), 'utf8').trim()),
        install: shown('npm install alkstore', 'bash'),
      };
      return `export default ${JSON.stringify(facts)}`;
    }
    if (!id.endsWith('?shown')) return undefined;
    const path = id.slice(0, -'?shown'.length);
    this.addWatchFile(path);
    return `export default ${JSON.stringify(parts(readFileSync(path, 'utf8')))}`;
  },
};

export default defineConfig({
  base: './',
  build: {
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    outDir: here('dist'),
    target: 'es2022',
  },
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  // Both dependencies are modules already; nothing has to be bundled before the page is developed.
  optimizeDeps: { noDiscovery: true },
  plugins: [policy, code],
  preview: { headers: headers(CSP), host: '127.0.0.1' },
  server: { fs: { allow: ['.', '../bindings-js/dist'] }, headers: headers(`${CSP}; connect-src 'self'`), host: '127.0.0.1' },
});
