// What must not grow.
import assert from 'node:assert/strict';
import test from 'node:test';
import v8 from 'node:v8';
import vm from 'node:vm';
import { openSync } from 'alkstore';
import { bytes, text } from './support.mjs';

v8.setFlagsFromString('--expose-gc');
const gc = vm.runInNewContext('gc');
/** What is in use. The memory of buffers is counted off a little after they were collected. */
async function heap() {
  for (let again = 0; again < 3; again++) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
const MB = 1 << 20;

async function flat(what, rounds, once, sync, warm = Math.min(rounds / 10, 20_000)) {
  for (let i = 0; i < warm; i++) once(i);
  const wasm = sync.stats().wasmBytes;
  const before = await heap();
  for (let i = warm; i < rounds; i++) once(i);
  assert.equal(sync.stats().wasmBytes, wasm, `${what}: WebAssembly memory`);
  const grown = (await heap()) - before;
  assert.ok(grown < 4 * MB, `${what}: the heap grew by ${grown} bytes`);
}

test('a million names that never come back', async () => {
  const { sync } = openSync();
  await flat('locks', 1_000_000, (i) => sync.tryLock(`request/${i}`, { ttl: 1e6 }).release(), sync);
  assert.equal(sync.stats().locks, 0);
});

test('a million names that come back once', async () => {
  const { sync } = openSync();
  await flat('locks', 500_000, (i) => {
    for (let again = 0; again < 2; again++) sync.tryLock(`request/${i}`, { ttl: 1e6 }).release();
  }, sync);
});

test('keys that never come back', async () => {
  const { sync } = openSync();
  const value = bytes('value');
  await flat('entries', 300_000, (i) => {
    sync.entries.put(`key/${i}`, value);
    sync.entries.get(`key/${i}`);
    sync.entries.delete(`key/${i}`);
  }, sync);
});

test('names of a text do not keep the text alive', async () => {
  const { sync } = openSync();
  // Each text is 256 KB, and each name a piece of it: an engine would share the memory.
  await flat('texts', 2200, (i) => {
    const long = `${i}`.padEnd(MB / 4, `padding ${i} `);
    const name = long.slice(10, 60);
    for (let again = 0; again < 3; again++) sync.tryLock(name, { ttl: 1e6 }).release();
    for (let again = 0; again < 3; again++) sync.entries.put(name, bytes('v'));
    sync.entries.delete(name);
  }, sync, 2000);
});

test('values are let go', async () => {
  const { sync } = openSync();
  const value = new Uint8Array(64 * 1024);
  await flat('replaced', 20_000, (i) => sync.entries.put(`k${i % 8}`, value), sync);
  await flat('read', 20_000, (i) => sync.entries.get(`k${i % 8}`), sync);
  await flat('in transactions', 20_000, () => sync.tx((tx) => tx.put('k', tx.get('k0'))), sync);
  await flat('rolled back', 5000, () => assert.throws(() => sync.tx((tx) => {
    tx.put('k', value);
    throw new Error('no');
  })), sync);
  await flat('refused', 5000, () => assert.throws(() => sync.atomic([{ op: 'put', key: 'k', value }, { op: 'put', key: 'k', value, ttl: 0 }])), sync);
  await flat('not stored', 5000, () => sync.entries.put('k', value, { ifVersion: 1 }), sync);
});

test('lapsed leases and the window make room', async () => {
  let now = 0;
  const { sync } = openSync({ clock: () => now });
  await flat('lapsed', 200_000, (i) => {
    now += 1;
    sync.tryLock(`request/${i}`, { ttl: 100 });
    if (i % 100 === 0) sync.purgeLapsed();
    sync.window.stage([{ key: `k${i}`, visibleAfter: now }]);
    assert.equal(text(sync.window.take()[0].key), `k${i}`);
  }, sync);
});

test('closed and forgotten stores are collected', async () => {
  const once = () => {
    const { sync } = openSync();
    sync.tryLock('a', { ttl: 1e6 });
    sync.entries.put('k', new Uint8Array(100_000));
    sync.close();
  };
  for (let i = 0; i < 20; i++) once();
  const before = await heap();
  for (let i = 0; i < 200; i++) {
    once();
    if (i % 20 === 0) gc();
  }
  const grown = (await heap()) - before;
  assert.ok(grown < 8 * MB, `${grown}`);
});
