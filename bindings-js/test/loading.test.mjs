// How the package gets into a program: each entry, bundled and not, in Node's threads and in what only looks like an
// edge runtime.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import test from 'node:test';
import vm from 'node:vm';
import { Worker } from 'node:worker_threads';
import { build } from 'esbuild';
import * as inline from 'alkstore';
import * as slim from 'alkstore/slim';
import { bytes, rejected, require, ROOT, text, thrown, wasmBytes, wasmPath } from './support.mjs';

const STORY = `
  const lease = await store.tryLock('a', { ttl: 1000 });
  const lost = await store.tryLock('a', { ttl: 1000 });
  await store.entries.put('k', new Uint8Array([1, 2, 3]), { guard: lease });
  const [value] = [...(await store.entries.get('k'))].slice(-1);
  const told = [lease.token, lost, value, await lease.release()].join();
`;
const TOLD = '1,,3,true';
const story = async (store) => new Function('store', `return (async () => { ${STORY} return told; })()`)(store);

test('every entry has the same surface', () => {
  assert.deepEqual(Object.keys(inline).sort(), ['AlkError', 'open', 'openSync']);
  assert.deepEqual(Object.keys(slim).sort(), ['AlkError', 'open', 'openSync']);
  assert.equal(slim.AlkError, inline.AlkError);
});

test('the default entry', async () => {
  assert.equal(await story(await inline.open()), TOLD);
  assert.equal(await story(inline.openSync()), TOLD);
  const [one, two] = await Promise.all([inline.open(), inline.open()]);
  assert.notEqual(one, two);
});

test('the slim entry takes a compiled module, bytes and URLs', async () => {
  const module = new WebAssembly.Module(wasmBytes());
  const buffer = new Uint8Array(wasmBytes()).buffer;
  for (const given of [module, wasmBytes(), buffer, new DataView(buffer), pathToFileURL(wasmPath)]) assert.equal(await story(await slim.open({ module: given })), TOLD);
  for (const given of [module, wasmBytes(), buffer]) assert.equal(await story(slim.openSync({ module: given })), TOLD);
  assert.equal(await story(await inline.open({ module })), TOLD);
  thrown('INVALID_ARGUMENT', () => slim.openSync({ module: pathToFileURL(wasmPath) }));
  thrown('INVALID_ARGUMENT', () => slim.openSync());
  await rejected('INVALID_ARGUMENT', slim.open());
  await rejected('INVALID_ARGUMENT', slim.open({ module: String(pathToFileURL(wasmPath)) }));
  await rejected('INVALID_ARGUMENT', slim.open({ module: 5 }));
  await rejected('DATABASE', slim.open({ module: bytes('no wasm') }));
  const empty = new WebAssembly.Module(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0));
  assert.match((await rejected('DATABASE', slim.open({ module: empty }))).message, /of this version/);
});

test('a URL is fetched once, and again after a failure', async () => {
  let healthy = false;
  let asked = 0;
  const server = createServer((request, response) => {
    asked += 1;
    if (!healthy) response.writeHead(503).end();
    else response.setHeader('content-type', 'application/octet-stream').end(wasmBytes());
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  try {
    const module = new URL(`http://127.0.0.1:${server.address().port}/alkstore.wasm?secret=hunter2`);
    const error = await rejected('DATABASE', slim.open({ module }));
    assert.match(error.cause.message, /503/);
    assert.ok(!error.message.includes('hunter2'), error.message);
    healthy = true;
    const stores = await Promise.all([slim.open({ module }), slim.open({ module })]);
    for (const store of stores) assert.equal(await story(store), TOLD);
    assert.equal(asked, 2);
  } finally {
    server.close();
  }
});

test('compiling is tried again after it was forbidden', async () => {
  const { compile, Module } = WebAssembly;
  const fresh = await import(`${pathToFileURL(require.resolve('alkstore'))}?fresh`);
  WebAssembly.compile = async () => {
    throw new WebAssembly.CompileError('forbidden');
  };
  WebAssembly.Module = class {
    constructor() {
      throw new WebAssembly.CompileError('forbidden');
    }
  };
  try {
    assert.match((await rejected('DATABASE', fresh.open())).message, /wasm-unsafe-eval/);
    thrown('DATABASE', () => fresh.openSync());
  } finally {
    Object.assign(WebAssembly, { compile, Module });
  }
  assert.equal(await story(await fresh.open()), TOLD);
});

async function bundled(code, options = {}) {
  const { outputFiles } = await build({
    bundle: true,
    format: 'esm',
    minify: true,
    platform: 'browser',
    stdin: { contents: code, resolveDir: fileURLToPath(ROOT) },
    target: 'es2022',
    write: false,
    ...options,
  });
  return outputFiles;
}

test('bundled by esbuild without any setting', async () => {
  const [{ text: code }] = await bundled(`import { open } from 'alkstore'; const store = await open(); ${STORY} export { told };`);
  assert.ok(!/\b(require|import\.meta|__dirname)\b/.test(code.replace(/"[A-Za-z0-9+/=]{1000,}"/, '')));
  const path = fileURLToPath(new URL('bundle.mjs', ROOT));
  writeFileSync(path, code);
  assert.equal((await import(pathToFileURL(path))).told, TOLD);
});

test('bundled slim, with the wasm as a file of its own', async () => {
  await bundled(
    `import { open } from 'alkstore/slim'; import path from 'alkstore/alkstore.wasm';
     const store = await open({ module: new URL(path, import.meta.url) }); ${STORY} export { told };`,
    { loader: { '.wasm': 'file' }, outdir: fileURLToPath(new URL('out', ROOT)), write: true },
  );
  const out = fileURLToPath(new URL('out', ROOT));
  const [script] = readdirSync(out).filter((name) => name.endsWith('.js'));
  const { told } = await import(pathToFileURL(join(out, script)));
  assert.equal(told, TOLD);
});

test('what is not used is left out', async () => {
  const [{ contents }] = await bundled(`import { AlkError } from 'alkstore/slim'; console.log(AlkError);`);
  assert.ok(contents.length < 3000, `${contents.length}`);
});

// As workerd does it: the bundler leaves the import of the wasm, which the runtime answers with a compiled module, and
// compiling from bytes is forbidden.
for (const condition of ['workerd', 'edge-light']) {
  test(`the entry for ${condition}`, async () => {
    const wasm = {
      name: 'wasm',
      setup(bundler) {
        bundler.onResolve({ filter: /\.wasm(\?module)?$/ }, ({ path }) => {
          assert.equal(path.endsWith('?module'), condition === 'edge-light');
          return { path, namespace: 'wasm' };
        });
        bundler.onLoad({ filter: /.*/, namespace: 'wasm' }, () => ({ contents: 'export default COMPILED;' }));
      },
    };
    const [{ text: code }] = await bundled(`import { open, openSync } from 'alkstore'; export { open, openSync };`, {
      conditions: [condition],
      plugins: [wasm],
      format: 'iife',
      globalName: 'alkstore',
      minify: false,
    });
    assert.ok(code.length < 100_000, 'the inline wasm is not in it');
    const { Instance, Module } = WebAssembly;
    const forbidden = () => {
      throw new WebAssembly.CompileError('Wasm code generation disallowed by embedder');
    };
    const context = vm.createContext({
      COMPILED: new Module(wasmBytes()),
      WebAssembly: { Instance, compile: forbidden, Module: forbidden },
      TextEncoder,
      TextDecoder,
      AbortController,
      setTimeout,
      clearTimeout,
      crypto,
    });
    vm.runInContext(code, context);
    assert.equal(await story(await context.alkstore.open()), TOLD);
    assert.equal(await story(context.alkstore.openSync()), TOLD);
  });
}

test('in a worker thread', async () => {
  const path = fileURLToPath(new URL('worker.mjs', ROOT));
  writeFileSync(path, `
    import { parentPort } from 'node:worker_threads';
    import { open } from 'alkstore';
    const store = await open();
    ${STORY}
    parentPort.postMessage(told);
  `);
  const worker = new Worker(path);
  const told = await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
  assert.equal(told, TOLD);
  await worker.terminate();
});

test('values of another realm are taken', async () => {
  const { sync } = inline.openSync();
  const [key, view, buffer, shared] = vm.runInNewContext('[new Uint8Array([1]), new Uint16Array([1]), new ArrayBuffer(3), new SharedArrayBuffer(3)]');
  for (const value of [view, buffer, shared]) sync.entries.put(key, value);
  assert.equal(sync.entries.get(key).length, 3);
  const options = vm.runInNewContext('({ ttl: 5, owner: "o" })');
  assert.equal(sync.tryLock('a', options).owner, 'o');
  const ops = vm.runInNewContext('[{ op: "put", key: "k", value: new Uint8Array([5]) }]');
  sync.atomic(ops);
  assert.equal(text(sync.entries.get('k')), '\x05');
});

test('the package is what it says', () => {
  const folder = dirname(require.resolve('alkstore'));
  const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  for (const field of ['dependencies', 'peerDependencies', 'optionalDependencies', 'scripts', 'private']) assert.equal(manifest[field], undefined);
  const files = readdirSync(folder);
  for (const name of ['index.js', 'slim.js', 'workerd.js', 'edge.js', 'index.d.ts', 'slim.d.ts', 'alkstore.wasm', 'README.md', 'LICENSE-MIT', 'LICENSE-APACHE']) assert.ok(files.includes(name), name);
  for (const name of files) {
    assert.match(name, /\.(js|d\.ts|wasm|json|md)$|^LICENSE-/);
    if (!name.endsWith('.js')) continue;
    const code = readFileSync(join(folder, name), 'utf8');
    assert.ok(!/^\s*(import|export)[^;'"]*['"](?!\.\/)/m.test(code), `${name} imports from outside`);
    assert.ok(!/\beval\(|new Function\b/.test(code), name);
  }
});
