// Builds the npm package: Rust -> wasm -> glue -> bindings-js/dist/package -> a tarball beside it.
//
//   node tools/build-package.mjs                  what `make demo` and `make test-js` need
//   node tools/build-package.mjs --check-sizes    also fails when the package has grown above its ceilings
//
// The package in dist/package is laid out as its users get it:
//   *.js, *.d.ts     from bindings-js/js, comments dropped (the types carry the documentation)
//   glue.js          what the wasm imports, as wasm-bindgen generates it: `createGlue()` makes it anew for each
//                    instance, so that nothing of one store is ever seen by another
//   inline.js        the wasm as base64 text; `bytes()` decodes it when first asked
//   alkstore.wasm    the same wasm, for those who load it themselves
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import binaryen from 'binaryen';
import { build, transform } from 'esbuild';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const CRATE = join(ROOT, 'bindings-js');
const DIST = join(CRATE, 'dist');
const OUT = join(DIST, 'package');
const TARGET = 'wasm32-unknown-unknown';

// In bytes. The size of the JavaScript is that of a bundled page, without inline.js, which is the wasm again.
const GOALS = { wasm: { gzip: 45_000, brotli: 36_000 }, bundled: { gzip: 8_000 } };

// What is over a goal already may not grow: above these the check fails. Lower them whenever the package shrinks.
const CEILINGS = { wasm: { gzip: 52_000, brotli: 44_500 }, bundled: { gzip: 11_300 } };

// What rustc 1.95 lets the wasm use. Named here so that wasm-opt never guesses: without them it
// would refuse the code, or lower it to something older.
const WASM_FEATURES = [
  '--enable-bulk-memory',
  '--enable-multivalue',
  '--enable-mutable-globals',
  '--enable-nontrapping-float-to-int',
  '--enable-reference-types',
  '--enable-sign-ext',
];

function fail(...lines) {
  for (const line of lines) console.error(`build-package: ${line}`);
  process.exit(1);
}

function run(program, args) {
  try {
    return execFileSync(program, args, { cwd: ROOT, encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'inherit'] });
  } catch (error) {
    fail(`${program} failed: ${error.message}`);
  }
}

// Returns the compiled wasm's path, and the folder that holds it and what is made from it.
function compile() {
  const metadata = JSON.parse(run('cargo', ['metadata', '--format-version', '1', '--filter-platform', TARGET]));
  const crate = metadata.packages.find((found) => found.name === 'alkstore-js');
  // A panic tells its source path. Cut short what is the builder's own in it: the folder that the
  // dependencies were unpacked into, and this one.
  const folders = metadata.packages.filter((found) => found.source).map((found) => dirname(dirname(found.manifest_path)));
  const remap = [...new Set(folders), ROOT].map((folder) => `--remap-path-prefix=${folder}=`);
  // Inlining as eagerly as a native program does makes the wasm a third larger and no faster.
  const config = `target.${TARGET}.rustflags=${JSON.stringify([...remap, '-Cllvm-args=-inline-threshold=75'])}`;
  run('cargo', ['build', '--quiet', '--package', 'alkstore-js', '--target', TARGET, '--profile', 'wasm', '--config', config]);
  const dir = join(metadata.target_directory, TARGET, 'wasm');
  return { version: crate.version, wasm: join(dir, 'alkstore_js.wasm'), dir: join(dir, 'npm') };
}

// The standard library's functions that never return because they panic, or because memory ends.
const PANICS = new RegExp(`::(${[
  'panicking::(panic|panic_fmt|panic_bounds_check|panic_with_hook|panic_const::\\w+|assert_failed(_inner|::<.*>)?)',
  'option::(expect_failed|unwrap_failed)',
  'result::unwrap_failed',
  'slice::index::slice_\\w*fail',
  'cell::panic_\\w+',
  'thread::local::panic_access_error',
  'raw_vec::handle_error',
  'alloc::handle_alloc_error',
].join('|')})$`);

// A panic ends in a trap; the text that it would print first has nowhere to go, so its making is left out.
function withoutPanics(bytes) {
  const module = binaryen.readBinary(bytes);
  let found = 0;
  for (let i = 0; i < module.getNumFunctions(); i++) {
    const fn = binaryen.Function(module.getFunctionByIndex(i));
    if (!PANICS.test(fn.name)) continue;
    fn.body = module.unreachable();
    found += 1;
  }
  if (found === 0) fail('the wasm has no panics to leave out: did their names change, or was the wasm stripped?');
  return module.emitBinary();
}

// `--target bundler` gives a *_bg.js that takes its instance by __wbg_set_wasm: the only target whose
// glue has no import.meta.url, no top-level await and no idea of its own where the wasm comes from.
function bind({ wasm, dir }) {
  rmSync(dir, { recursive: true, force: true });
  run('wasm-bindgen', ['--target', 'bundler', '--no-typescript', '--encode-into', 'always', '--out-dir', dir, '--out-name', 'alkstore', wasm]);
  const bound = join(dir, 'alkstore_bg.wasm');
  writeFileSync(bound, withoutPanics(readFileSync(bound)));
  const small = join(dir, 'alkstore.wasm');
  const wasmOpt = join(ROOT, 'tools/node_modules/.bin/wasm-opt');
  const strip = ['--strip-debug', '--strip-producers', '--strip-target-features'];
  run(wasmOpt, ['-Oz', '--converge', '--reorder-functions', '--reorder-locals', ...WASM_FEATURES, ...strip, bound, '-o', small]);
  return { bytes: readFileSync(small), glue: readFileSync(join(dir, 'alkstore_bg.js'), 'utf8') };
}

// The wasm may import nothing but the glue. An import from "env" is an unresolved C or clock symbol,
// which links without a word and throws when it is first instantiated.
function checkImports(bytes, glue) {
  const wanted = WebAssembly.Module.imports(new WebAssembly.Module(bytes));
  const modules = [...new Set(wanted.map((found) => found.module))];
  const alien = wanted.filter((found) => found.module !== './alkstore_bg.js');
  if (alien.length > 0) {
    fail('the wasm imports what nobody provides:', ...alien.map((found) => `  ${found.kind} "${found.module}" "${found.name}"`));
  }
  const lost = wanted.filter((found) => !new RegExp(`\\bexport (function|const) ${found.name.replaceAll('$', '\\$')}\\b`).test(glue));
  if (lost.length > 0) fail(`the glue lacks ${lost.map((found) => found.name).join(', ')}`);
  return { module: modules[0], names: wanted.map((found) => found.name) };
}

// The generated glue keeps the instance in variables of its module. As the body of a function they are that
// instance's own. The wrappers around the exports go: they pass numbers and references on as they are.
async function factory(glue, { module, names }) {
  const result = await build({
    bundle: true,
    charset: 'utf8',
    format: 'esm',
    logLevel: 'error',
    stdin: { contents: `export { ${[...names, '__wbg_set_wasm'].join(', ')} } from 'glue';` },
    plugins: [{
      name: 'glue',
      setup(with_) {
        with_.onResolve({ filter: /^glue$/ }, () => ({ path: 'glue', namespace: 'glue' }));
        with_.onLoad({ filter: /.*/, namespace: 'glue' }, () => ({ contents: glue }));
      },
    }],
    target: 'es2022',
    write: false,
  }).catch(() => fail('the glue of wasm-bindgen does not bundle'));
  const [body, ...rest] = result.outputFiles[0].text.split(/^export \{[^}]*\};$/m);
  if (rest.length !== 1 || rest[0].trim() || /^(import|export)\b/m.test(body)) fail('the glue of wasm-bindgen has an unknown shape');
  return `export function createGlue() {
${body}
  return {
    imports: { ${JSON.stringify(module)}: { ${names.join(', ')} } },
    start(exports) {
      __wbg_set_wasm(exports);
      exports.__wbindgen_start();
      return exports;
    },
  };
}
`;
}

// Prints a module as shipped: names and lines stay readable, comments go.
async function ship(name, source) {
  const { code } = await transform(source, {
    charset: 'utf8',
    format: 'esm',
    legalComments: 'none',
    sourcefile: name,
    supported: { 'top-level-await': false },
    target: 'es2022',
  }).catch((error) => fail(error.message));
  if (/\bimport\.meta\b/.test(code)) fail(`${name} uses import.meta, which several bundlers and workers lack`);
  writeFileSync(join(OUT, name), code);
  return code;
}

function inline(bytes) {
  return `const text =
  "${bytes.toString('base64')}";

export function bytes() {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}
`;
}

// Bundles an entry as a browser's bundler would: that finds missing files and Node built-ins.
async function bundle(entry) {
  const result = await build({
    bundle: true,
    entryPoints: [join(OUT, entry)],
    external: ['./inline.js', './alkstore.wasm', './alkstore.wasm?module'],
    format: 'esm',
    logLevel: 'error',
    minify: true,
    platform: 'browser',
    target: 'es2022',
    write: false,
  }).catch(() => fail(`${entry} does not bundle for a browser`));
  return result.outputFiles[0].contents;
}

function sizes(data) {
  const brotli = { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } };
  return { raw: data.length, gzip: gzipSync(data, { level: 9 }).length, brotli: brotliCompressSync(data, brotli).length };
}

function table(report) {
  const grown = [];
  console.log(['', 'raw', 'gzip', 'brotli'].map((head, at) => (at ? head.padStart(16) : head.padEnd(22))).join(''));
  for (const [what, { label, ...measured }] of Object.entries(report)) {
    let line = label.padEnd(22);
    for (const how of ['raw', 'gzip', 'brotli']) {
      const goal = GOALS[what]?.[how];
      const ceiling = CEILINGS[what]?.[how];
      if (measured[how] > ceiling) grown.push(`${label}, ${how}: ${measured[how]} bytes, the ceiling is ${ceiling}`);
      const sign = measured[how] > goal ? '> ' : '<=';
      line += `${measured[how] ?? ''}${goal ? ` ${sign} ${goal}` : ''}`.padStart(16);
    }
    console.log(line);
  }
  return grown;
}

console.log('build-package: compiling alkstore-js to wasm (the first time: one to two minutes)');
const compiled = compile();
const manifest = JSON.parse(readFileSync(join(CRATE, 'package.json'), 'utf8'));
if (manifest.version !== compiled.version) {
  fail(`bindings-js/package.json says ${manifest.version}, the crate ${compiled.version}: they must agree`);
}

console.log('build-package: binding and shrinking the wasm (a few seconds)');
const { bytes, glue } = bind(compiled);
const imports = checkImports(bytes, glue);

rmSync(DIST, { recursive: true, force: true });
mkdirSync(OUT, { recursive: true });
writeFileSync(join(OUT, 'alkstore.wasm'), bytes);
await ship('inline.js', inline(bytes));
const scripts = [await ship('glue.js', await factory(glue, imports))];
for (const name of readdirSync(join(CRATE, 'js')).sort()) {
  const path = join(CRATE, 'js', name);
  if (name.endsWith('.d.ts')) cpSync(path, join(OUT, name));
  else if (name.endsWith('.js')) scripts.push(await ship(name, readFileSync(path, 'utf8')));
  else fail(`bindings-js/js/${name} is neither .js nor .d.ts`);
}

// The manifest in bindings-js is private, so that nobody publishes that folder by mistake.
delete manifest.private;
writeFileSync(join(OUT, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
for (const path of ['bindings-js/README.md', 'LICENSE-MIT', 'LICENSE-APACHE']) {
  if (!existsSync(join(ROOT, path))) fail(`${path} is missing, and the package ships it`);
  cpSync(join(ROOT, path), join(OUT, path.split('/').at(-1)));
}

const bundled = await bundle('index.js');
for (const entry of ['slim.js', 'workerd.js', 'edge.js']) await bundle(entry);
// The flags keep npm quiet and offline: packing runs no script and asks nobody.
run('npm', ['pack', '--silent', '--ignore-scripts', '--offline', '--pack-destination', DIST, OUT]);
const tarball = join(DIST, `alkstore-${manifest.version}.tgz`);

const report = {
  wasm: { label: 'wasm', ...sizes(bytes) },
  js: { label: 'JS as shipped', ...sizes(Buffer.from(scripts.join(''))) },
  bundled: { label: 'JS bundled, minified', ...sizes(bundled) },
  tarball: { label: 'tarball', raw: statSync(tarball).size },
};
const grown = table(report);
writeFileSync(join(DIST, 'sizes.json'), `${JSON.stringify({ version: manifest.version, goals: GOALS, ...report }, null, 2)}\n`);
console.log(`build-package: wrote bindings-js/dist/alkstore-${manifest.version}.tgz`);
if (process.argv.includes('--check-sizes') && grown.length > 0) fail('the package has grown:', ...grown.map((line) => `  ${line}`));
