import assert from 'node:assert/strict';
import test from 'node:test';
import { manual, rejected, text, bytes, thrown } from './support.mjs';

test('put replaces, putIfAbsent lets the first writer win and returns the winner', async () => {
  const { store } = manual();
  const { entries } = store;
  assert.deepEqual(await entries.put('k', bytes('one')), { stored: true, version: 1 });
  assert.deepEqual(await entries.put('k', bytes('two')), { stored: true, version: 2 });
  const winner = await entries.putIfAbsent('k', bytes('three'));
  assert.deepEqual([winner.stored, text(winner.value), winner.version, winner.expiresAt], [false, 'two', 2, null]);
  const fresh = await entries.putIfAbsent('l', bytes('three'), { ttl: 5 });
  assert.deepEqual([fresh.stored, text(fresh.value), fresh.version, fresh.expiresAt], [true, 'three', 3, 1_000_005]);
});

test('compare and swap tells the version in the way', () => {
  const { entries } = manual().sync;
  assert.deepEqual(entries.put('k', bytes('a'), { ifVersion: 7 }), { stored: false, version: null });
  entries.put('k', bytes('a'));
  for (const again of [1, 2, 3]) {
    assert.deepEqual(entries.put('k', bytes('b'), { ifVersion: 99 }), { stored: false, version: again });
    assert.deepEqual(entries.put('k', bytes('b'), { ifVersion: again }), { stored: true, version: again + 1 });
  }
  assert.equal(entries.delete('k', { ifVersion: 1 }), false);
  assert.equal(entries.delete('k', { ifVersion: 4 }), true);
  assert.equal(entries.delete('k'), false);
});

test('a lapsed entry is absent to every call', () => {
  const { sync, clock } = manual();
  const { entries } = sync;
  entries.put('k', bytes('v'), { ttl: 10 });
  assert.equal(entries.touch('k', 20), true);
  clock.now += 19.5;
  assert.equal(text(entries.get('k')), 'v');
  clock.now += 0.5;
  for (let again = 0; again < 3; again++) {
    assert.equal(entries.get('k'), null);
    assert.equal(entries.getEntry('k'), null);
    assert.equal(entries.has('k'), false);
  }
  assert.equal(entries.touch('k', 20), false);
  assert.deepEqual(entries.list(), []);
  assert.equal(entries.putIfAbsent('k', bytes('w')).stored, true);
});

test('a string key is its UTF-8, and bytes are bytes', () => {
  const { entries } = manual().sync;
  entries.put('é/\u{1f600}', bytes('v'));
  assert.equal(text(entries.get(bytes('é/\u{1f600}'))), 'v');
  entries.put(Uint8Array.of(0, 255), bytes('raw'));
  assert.equal(text(entries.get(Uint8Array.of(0, 255))), 'raw');
  assert.equal(text(entries.get(Buffer.from([0, 255]))), 'raw');
  for (const key of ['__proto__', 'constructor', 'toString']) {
    assert.equal(entries.get(key), null);
    for (const value of ['1', '2', '3']) {
      entries.put(key, bytes(value));
      assert.equal(text(entries.get(key)), value);
    }
  }
  assert.deepEqual(entries.list('t').map((row) => text(row.key)), ['toString']);
});

test('list pages in bytewise order', () => {
  const { entries } = manual().sync;
  for (const key of ['b', 'a/2', 'a/1', 'a/10', '\u{1f600}', '\ufffd']) entries.put(key, bytes(key), { ttl: 5 });
  assert.deepEqual(entries.list().map((row) => text(row.key)), ['a/1', 'a/10', 'a/2', 'b', '\ufffd', '\u{1f600}']);
  assert.deepEqual(entries.list('a/', { after: 'a/1', limit: 1 }), [{ key: bytes('a/10'), version: 4, expiresAt: 1_000_005, size: 4 }]);
  assert.deepEqual(entries.list('', { limit: 0 }), []);
  assert.deepEqual(entries.list(bytes('a/'), { after: bytes('a/10') }).map((row) => text(row.key)), ['a/2']);
});

test('values are copied in and out', () => {
  const { entries } = manual().sync;
  const value = bytes('mine');
  for (let again = 0; again < 3; again++) {
    entries.put('k', value);
    value.fill(0);
    const read = entries.get('k');
    assert.equal(text(read), 'mine');
    read.fill(0);
    const entry = entries.getEntry('k');
    entry.value.fill(0);
    const winner = entries.putIfAbsent('k', value);
    winner.value.fill(0);
    assert.equal(text(entries.get('k')), 'mine');
    value.set(bytes('mine'));
  }
  entries.putIfAbsent('fresh', value).value.fill(0);
  assert.equal(text(entries.get('fresh')), 'mine');
});

test('every kind of bytes is taken by its own bytes', () => {
  const { entries } = manual().sync;
  const buffer = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8).buffer;
  const shared = new SharedArrayBuffer(4);
  new Uint8Array(shared).set([1, 2, 3, 4]);
  const growing = new ArrayBuffer(4, { maxByteLength: 16 });
  new Uint8Array(growing).set([1, 2, 3, 4]);
  const tracking = new Uint8Array(growing, 1);
  growing.resize(6);
  class Mine extends Uint8Array {}
  const lying = Uint8Array.of(1, 2, 3);
  Object.defineProperty(lying, 'length', { value: 1 });
  for (const [value, expected] of [
    [buffer, [1, 2, 3, 4, 5, 6, 7, 8]],
    [new Uint8Array(buffer, 2, 3), [3, 4, 5]],
    [new Uint16Array(buffer, 2, 2), [3, 4, 5, 6]],
    [new Float64Array(buffer), [1, 2, 3, 4, 5, 6, 7, 8]],
    [new BigInt64Array(buffer), [1, 2, 3, 4, 5, 6, 7, 8]],
    [new DataView(buffer, 6), [7, 8]],
    [Buffer.from('ab'), [97, 98]],
    [Mine.of(9, 8), [9, 8]],
    [lying, [1, 2, 3]],
    [shared, [1, 2, 3, 4]],
    [new Uint8Array(shared, 1, 2), [2, 3]],
    [growing, [1, 2, 3, 4, 0, 0]],
    [tracking, [2, 3, 4, 0, 0]],
    [new Uint8Array(0), []],
  ]) {
    entries.put('k', value);
    const read = entries.get('k');
    assert.deepEqual([...read], expected);
    assert.equal(read.constructor, Uint8Array);
    assert.equal(read.byteLength, read.buffer.byteLength, 'nothing else comes along');
  }
});

test('a fenced write happens only while its grant is live', async () => {
  const { store, sync, clock } = manual();
  const lease = await store.tryLock('shard', { ttl: 10 });
  await store.entries.put('k', bytes('a'), { guard: lease });
  await store.entries.put('k', bytes('b'), { guard: { name: 'shard', token: lease.token } });
  clock.now += 10;
  const error = await rejected('LEASE_LOST', store.entries.put('k', bytes('late'), { guard: lease }));
  assert.equal(error.retryable, false);
  thrown('LEASE_LOST', () => sync.entries.putIfAbsent('new', bytes('late'), { guard: lease }));
  assert.equal(text(sync.entries.get('k')), 'b');
  assert.equal(sync.entries.has('new'), false);
});

test('limits refuse with CAPACITY after lapsed rows went', () => {
  const { sync, clock } = manual({ maxLocks: 1, maxEntries: 2, maxBytes: 20 });
  const lease = sync.tryLock('a', { ttl: 5 });
  thrown('CAPACITY', () => sync.tryLock('b', { ttl: 5 }));
  assert.equal(lease.release(), true);
  sync.entries.put('k1', bytes('v'), { ttl: 5 });
  sync.entries.put('k2', bytes('v'));
  for (let again = 0; again < 3; again++) thrown('CAPACITY', () => sync.entries.put('k3', bytes('v')));
  thrown('CAPACITY', () => sync.entries.put('k2', new Uint8Array(16)));
  clock.now += 5;
  assert.equal(sync.entries.put('k3', bytes('v')).stored, true);
  assert.equal(sync.stats().entries, 2);
});
