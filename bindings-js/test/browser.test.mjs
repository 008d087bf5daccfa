// The package in Chromium: a page under a strict Content-Security-Policy, and workers of it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { dirname, extname, join } from 'node:path';
import test, { after, before } from 'node:test';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';
import { fileURLToPath } from 'node:url';
import { require, ROOT } from './support.mjs';

// What the README tells a page to allow, and no more.
const CSP = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'";
const WITHOUT_WASM = "default-src 'none'; script-src 'self'; worker-src 'self'; connect-src 'self'";

const STORY = `
  async function story(open, openSync, options) {
    const store = await open(options);
    const lease = await store.tryLock('a', { ttl: 60000 });
    const lost = await store.tryLock('a', { ttl: 60000 });
    await store.entries.put('k', new Uint8Array([1, 2, 3]), { guard: lease });
    const value = await store.entries.get('k');
    const moved = store.sync.tx((tx) => (tx.put('l', tx.get('k')), tx.delete('k')));
    await store.restore(await store.snapshot());
    const signal = (await store.tryLock('b', { ttl: 30 })).signal;
    await new Promise((done) => (signal.aborted ? done() : signal.addEventListener('abort', done)));
    const same = options?.module instanceof URL ? 1 : openSync(options).sync.tryLock('a', { ttl: 5 }).token;
    return [lease.token, lost, value.join(''), moved, signal.reason.code, same].join();
  }
`;
const TOLD = '1,,123,true,LEASE_LOST,1';

const SCRIPTS = {
  '/default.js': `import { open, openSync } from '/package/index.js'; ${STORY} tell(() => story(open, openSync));`,
  '/slim.js': `import { open, openSync } from '/package/slim.js'; ${STORY}
    tell(() => story(open, openSync, { module: new URL('/package/alkstore.wasm', location.href) }));`,
  '/compiled.js': `import { open, openSync } from '/package/slim.js'; ${STORY}
    tell(async () => story(open, openSync, { module: await WebAssembly.compileStreaming(fetch('/package/alkstore.wasm')) }));`,
  '/forbidden.js': `import { open, openSync } from '/package/index.js';
    tell(async () => {
      const codes = [];
      for (const way of [async () => openSync(), open]) await way().catch((error) => codes.push(error.code, /wasm-unsafe-eval/.test(error.message)));
      return codes.join();
    });`,
};
// In a worker the answer is a message; in the page it is one as well, to itself.
const TELL = `const tell = (run) => run().then((told) => postMessage({ told }), (error) => postMessage({ told: error.stack }));\n`;

let server;
let origin;
let browser;

before(async () => {
  const folder = dirname(require.resolve('alkstore'));
  const { outputFiles } = await build({
    bundle: true,
    format: 'iife',
    minify: true,
    stdin: { contents: `import { open, openSync } from 'alkstore'; ${TELL}${STORY} tell(() => story(open, openSync));`, resolveDir: fileURLToPath(ROOT) },
    target: 'es2022',
    write: false,
  });
  const types = { '.js': 'text/javascript', '.wasm': 'application/wasm' };
  server = createServer(({ url }, response) => {
    const { pathname, searchParams } = new URL(url, 'http://localhost');
    const csp = searchParams.has('forbid') ? WITHOUT_WASM : CSP;
    response.setHeader('content-security-policy', csp);
    if (pathname === '/') return void response.setHeader('content-type', 'text/html').end('<!doctype html><title>alkstore</title>');
    response.setHeader('content-type', types[extname(pathname)] ?? 'text/plain');
    try {
      if (pathname === '/bundle.js') response.end(outputFiles[0].contents);
      else if (pathname in SCRIPTS) response.end(TELL + SCRIPTS[pathname]);
      else if (/^\/package\/[\w.]+$/.test(pathname)) response.end(readFileSync(join(folder, pathname.slice('/package/'.length))));
      else response.writeHead(404).end();
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  origin = `http://127.0.0.1:${server.address().port}`;
  const find = 'command -v chromium chromium-browser google-chrome google-chrome-stable chrome | head -n 1';
  const executablePath = process.env.CHROMIUM ?? execFileSync('sh', ['-c', find], { encoding: 'utf8' }).trim();
  // Its sandbox refuses to run as root, as in a container.
  browser = await chromium.launch({ executablePath, chromiumSandbox: process.getuid() !== 0 });
});

after(async () => {
  await browser?.close();
  server?.close();
});

/** Runs a script in a page, or in a worker of it. */
async function tell(script, where, query = '') {
  const page = await browser.newPage();
  const problems = [];
  page.on('console', (message) => message.type() === 'error' && !/favicon/.test(message.location().url) && problems.push(message.text()));
  page.on('pageerror', (error) => problems.push(String(error)));
  try {
    await page.goto(`${origin}/${query}`);
    const told = await page.evaluate(
      ([url, kind]) =>
        new Promise((done, fail) => {
          const hear = ({ data }) => data?.told !== undefined && done(data.told);
          if (kind === 'page') {
            window.addEventListener('message', hear);
            const element = document.createElement('script');
            Object.assign(element, { src: url, type: url.startsWith('/bundle') ? 'text/javascript' : 'module', onerror: () => fail(new Error('it did not load')) });
            document.head.append(element);
            return;
          }
          const worker = new Worker(url, { type: kind === 'worker' ? 'classic' : 'module' });
          worker.onerror = (event) => fail(new Error(event.message ?? 'the worker did not start'));
          worker.onmessage = hear;
        }),
      [script + query, where],
    );
    return { told, problems };
  } finally {
    await page.close();
  }
}

for (const [script, where] of [
  ['/default.js', 'page'],
  ['/slim.js', 'page'],
  ['/compiled.js', 'page'],
  ['/bundle.js', 'page'],
  ['/default.js', 'module worker'],
  ['/slim.js', 'module worker'],
  ['/bundle.js', 'worker'],
]) {
  test(`Chromium, ${where}, strict CSP: ${script.slice(1)}`, async () => {
    assert.deepEqual(await tell(script, where), { told: TOLD, problems: [] });
  });
}

test('Chromium, a CSP that forbids WebAssembly: the error says what to allow', async () => {
  const { told } = await tell('/forbidden.js', 'page', '?forbid');
  assert.equal(told, 'DATABASE,true,DATABASE,true');
});
