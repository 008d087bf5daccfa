// Every row of bad input that JavaScript can express, as data. Each is refused with its code, by the calls with
// promises as by those without, and the store is unchanged.
import assert from 'node:assert/strict';
import test from 'node:test';
import { bytes, manual, rejected, thrown } from './support.mjs';

const MB = 1 << 20;
const LONG = 'x'.repeat(513);

const badNames = {
  empty: ['', 'INVALID_NAME'],
  blank: [' \t\u3000', 'INVALID_NAME'],
  'U+0000 inside': ['a\0b', 'INVALID_NAME'],
  '513 bytes': [LONG, 'INVALID_NAME'],
  '513 bytes in 171 characters': ['\u20ac'.repeat(171), 'INVALID_NAME'],
  '1 MB': ['y'.repeat(MB), 'INVALID_NAME'],
  '2000 bytes of emoji': ['\u{1f600}'.repeat(500), 'INVALID_NAME'],
  'lone high surrogate': ['a\ud800', 'INVALID_NAME'],
  'lone low surrogate': ['\udc00a', 'INVALID_NAME'],
  number: [5, 'INVALID_ARGUMENT'],
  null: [null, 'INVALID_ARGUMENT'],
  object: [{ toString: () => 'a' }, 'INVALID_ARGUMENT'],
  'string object': [new String('a'), 'INVALID_ARGUMENT'],
  symbol: [Symbol('a'), 'INVALID_ARGUMENT'],
  bytes: [bytes('a'), 'INVALID_ARGUMENT'],
};

const badKeys = {
  empty: ['', 'INVALID_ARGUMENT'],
  'empty bytes': [new Uint8Array(0), 'INVALID_ARGUMENT'],
  '1025 bytes': ['k'.repeat(1025), 'INVALID_ARGUMENT'],
  '1025 bytes, as bytes': [new Uint8Array(1025), 'INVALID_ARGUMENT'],
  '1 MB': ['k'.repeat(MB), 'INVALID_ARGUMENT'],
  '1 MB, as bytes': [new Uint8Array(MB), 'INVALID_ARGUMENT'],
  'lone surrogate': ['a\ud800', 'INVALID_ARGUMENT'],
  number: [5, 'INVALID_ARGUMENT'],
  undefined: [undefined, 'INVALID_ARGUMENT'],
  null: [null, 'INVALID_ARGUMENT'],
  object: [{}, 'INVALID_ARGUMENT'],
  array: [[1, 2], 'INVALID_ARGUMENT'],
  symbol: [Symbol('a'), 'INVALID_ARGUMENT'],
  ArrayBuffer: [new ArrayBuffer(2), 'INVALID_ARGUMENT'],
  Uint16Array: [new Uint16Array(2), 'INVALID_ARGUMENT'],
  'a fake Uint8Array': [Object.create(Uint8Array.prototype), 'INVALID_ARGUMENT'],
};

const never = () => assert.fail('it was called');
const badTtls = {
  zero: 0,
  'minus zero': -0,
  negative: -1,
  'less than a nanosecond': 1e-7,
  NaN: NaN,
  infinity: Infinity,
  'minus infinity': -Infinity,
  '1e300': 1e300,
  '2^53': 2 ** 53,
  'above 100 years': 3_155_760_000_000.001,
  string: '5',
  bigint: 5n,
  null: null,
  'an object with a throwing valueOf': { valueOf: never, [Symbol.toPrimitive]: never, toString: never },
  array: [5],
  'a number object': new Number(5),
};

const detached = new Uint8Array(8);
structuredClone(detached.buffer, { transfer: [detached.buffer] });
const shrunk = (() => {
  const buffer = new ArrayBuffer(8, { maxByteLength: 8 });
  const view = new Uint8Array(buffer, 4, 4);
  const words = new Uint16Array(buffer, 4, 2);
  const data = new DataView(buffer, 4, 4);
  buffer.resize(2);
  return { view, words, data };
})();

const badValues = {
  'detached view': detached,
  'detached buffer': detached.buffer,
  'shrunk view': shrunk.view,
  'shrunk view of words': shrunk.words,
  'shrunk DataView': shrunk.data,
  number: 5,
  string: 'text',
  undefined,
  null: null,
  array: [1, 2],
  'length alone': { length: 4e9 },
  'a fake ArrayBuffer': { [Symbol.toStringTag]: 'ArrayBuffer', byteLength: 4, length: 4e9 },
  'a fake Uint8Array': Object.create(Uint8Array.prototype),
  'above 64 MiB': new Uint8Array(64 * MB + 1),
};

const badRevisions = { zero: 0, negative: -1, fraction: 1.5, '2^53': 2 ** 53, NaN, infinity: Infinity, string: '1', bigint: 1n, null: null, object: {} };
const badLimits = { negative: -1, fraction: 1.5, '2^53': 2 ** 53, NaN, infinity: Infinity, string: '1', bigint: 1n, null: null };
const badInstants = { NaN, string: '1', bigint: 1n, null: null, undefined, date: new Date(0) };
const notObjects = { null: null, number: 5, string: 'ttl', symbol: Symbol('a'), function: () => {} };

const value = bytes('v');

// [what, the code or a table of codes, the inputs, the calls]
const rows = [];
for (const [what, [name, code]] of Object.entries(badNames)) {
  rows.push([`name: ${what}`, code, {
    tryLock: (store) => store.tryLock(name, { ttl: 5 }),
    'tryLock as somebody': (store) => store.tryLock(name, { ttl: 5, owner: 'o' }),
    'tryLock, all else wrong too': (store) => store.tryLock(name, { ttl: 0, owner: 5 }),
    lockInfo: (store) => store.lockInfo(name),
    forceRelease: (store) => store.forceRelease(name, { token: 1 }),
    'forceRelease of a bad token': (store) => (typeof name === 'string' ? store.forceRelease(name, { token: 'x' }) : store.forceRelease(name, { token: 1 })),
    lease: async (store) => store.lease({ name, owner: 'o', token: 1 }),
    'guard of put': (store) => store.entries.put('k', value, { guard: { name, token: 1 } }),
    'guard of putIfAbsent': (store) => store.entries.putIfAbsent('new', value, { guard: { name, token: 1 } }),
    'guard of atomic': (store) => store.atomic([{ op: 'guard', name, token: 1 }]),
    'guard of tx': async (store) => store.sync.tx((tx) => tx.guard({ name, token: 1 })),
  }]);
  rows.push([`owner: ${what}`, code, {
    tryLock: (store) => store.tryLock('fresh', { ttl: 5, owner: name }),
    'tryLock of a known name': (store) => store.tryLock('held', { ttl: 5, owner: name }),
    'tryLock, ttl wrong too': (store) => store.tryLock('fresh', { ttl: 0, owner: name }),
    lease: async (store) => store.lease({ name: 'a', owner: name, token: 1 }),
  }]);
}
rows.push(['name: reserved', 'RESERVED_NAME', {
  tryLock: (store) => store.tryLock('__alkstore_x', { ttl: 5 }),
  lockInfo: (store) => store.lockInfo('__alkstore_'),
  lease: async (store) => store.lease({ name: '__alkstore_x', owner: 'o', token: 1 }),
  guard: (store) => store.entries.put('k', value, { guard: { name: '__alkstore_x', token: 1 } }),
}]);
rows.push(['name: undefined', 'INVALID_ARGUMENT', { tryLock: (store) => store.tryLock(undefined, { ttl: 5 }), lockInfo: (store) => store.lockInfo() }]);
rows.push(['owner: undefined in a lease', 'INVALID_ARGUMENT', { lease: async (store) => store.lease({ name: 'a', token: 1 }) }]);
for (const [what, [key, code]] of Object.entries(badKeys)) {
  rows.push([`key: ${what}`, code, {
    get: (store) => store.entries.get(key),
    getEntry: (store) => store.entries.getEntry(key),
    has: (store) => store.entries.has(key),
    put: (store) => store.entries.put(key, value),
    'put, all else wrong too': (store) => store.entries.put(key, 5, { ttl: 0 }),
    putIfAbsent: (store) => store.entries.putIfAbsent(key, value),
    touch: (store) => store.entries.touch(key, 5),
    delete: (store) => store.entries.delete(key),
    'atomic check': (store) => store.atomic([{ op: 'check', key, version: null }]),
    'atomic put': (store) => store.atomic([{ op: 'put', key, value }]),
    'atomic stage': (store) => store.atomic([{ op: 'stage', key, visibleAfter: 1 }]),
    'tx get': async (store) => store.sync.tx((tx) => tx.get(key)),
    'tx put': async (store) => store.sync.tx((tx) => tx.put(key, value)),
    'tx delete': async (store) => store.sync.tx((tx) => tx.delete(key)),
    'tx stage': async (store) => store.sync.tx((tx) => tx.stage(key, 1)),
    'window.stage': (store) => store.window.stage([{ key: 'fine', visibleAfter: 1 }, { key, visibleAfter: 1 }]),
    'window.unstage': (store) => store.window.unstage(['waiting', key]),
    'window.settle': (store) => store.window.settle([{ key, id: 1 }]),
    'window.mark': (store) => store.window.mark([{ key, id: 1 }]),
    'window.judge': (store) => store.window.judge(['k', key]),
    'window.list': (store) => store.window.list({ after: { key, visibleAfter: 1 } }),
    'window.info': (store) => store.window.info(key),
  }]);
}
for (const [what, ttl] of Object.entries(badTtls)) {
  rows.push([`ttl: ${what}`, 'INVALID_DURATION', {
    'tryLock of a new name': (store) => store.tryLock('fresh', { ttl }),
    'tryLock of a known name': (store) => store.tryLock('held', { ttl }),
    'renew of a rebuilt lease': (store, { parts }) => store.lease(parts).renew(ttl),
    'renew of the grant': async (store, { held }) => held.renew(ttl),
    touch: (store) => store.entries.touch('k', ttl),
    put: (store) => store.entries.put('k', value, { ttl }),
    'put of a new key': (store) => store.entries.put('fresh', value, { ttl }),
    putIfAbsent: (store) => store.entries.putIfAbsent('fresh', value, { ttl }),
    atomic: (store) => store.atomic([{ op: 'put', key: 'k', value, ttl }]),
    tx: async (store) => store.sync.tx((tx) => tx.put('k', value, { ttl })),
    'window.claim': (store) => store.window.claim({ lease: ttl }),
    'window.beginSweep': (store) => store.window.beginSweep(ttl),
    'window.extendSweep': (store) => store.window.extendSweep(1, ttl),
  }]);
}
rows.push(['ttl: undefined', 'INVALID_DURATION', {
  tryLock: (store) => store.tryLock('fresh', {}),
  'renew of a rebuilt lease': (store, { parts }) => store.lease(parts).renew(),
  touch: (store) => store.entries.touch('k'),
  'window.claim': (store) => store.window.claim({}),
}]);
for (const [what, bad] of Object.entries(badValues)) {
  rows.push([`value: ${what}`, 'INVALID_ARGUMENT', {
    put: (store) => store.entries.put('k', bad),
    'put of a new key': (store) => store.entries.put('fresh', bad),
    'put, ttl wrong too': (store) => store.entries.put('k', bad, { ttl: 0 }),
    putIfAbsent: (store) => store.entries.putIfAbsent('fresh', bad),
    atomic: (store) => store.atomic([{ op: 'put', key: 'k', value: bad }]),
    tx: async (store) => store.sync.tx((tx) => tx.put('k', bad)),
  }]);
  if (what !== 'above 64 MiB') rows.push([`snapshot: ${what}`, 'INVALID_ARGUMENT', { restore: (store) => store.restore(bad) }]);
}
for (const [what, bad] of Object.entries(badRevisions)) {
  rows.push([`revision: ${what}`, 'INVALID_ARGUMENT', {
    lease: async (store) => store.lease({ name: 'a', owner: 'o', token: bad }),
    forceRelease: (store) => store.forceRelease('held', { token: bad }),
    'put ifVersion': (store) => store.entries.put('k', value, { ifVersion: bad }),
    'put ifVersion of a new key': (store) => store.entries.put('fresh', value, { ifVersion: bad }),
    'delete ifVersion': (store) => store.entries.delete('k', { ifVersion: bad }),
    guard: (store) => store.entries.put('k', value, { guard: { name: 'held', token: bad } }),
    'atomic guard': (store) => store.atomic([{ op: 'guard', name: 'held', token: bad }]),
    'atomic ifVersion': (store) => store.atomic([{ op: 'put', key: 'k', value, ifVersion: bad }]),
    'window.settle': (store) => store.window.settle([{ key: 'waiting', id: bad }]),
    'window.mark': (store) => store.window.mark([{ key: 'waiting', id: bad }]),
    'window.finish': (store) => store.window.finish([], { epoch: bad }),
    'window.delete': (store) => store.window.delete([{ key: 'waiting', id: 1 }], { epoch: bad }),
    'window.extendSweep': (store) => store.window.extendSweep(bad, 5),
    'window.endSweep': (store) => store.window.endSweep(bad),
  }]);
  if (bad !== null) rows.push([`version to check: ${what}`, 'INVALID_ARGUMENT', { atomic: (store) => store.atomic([{ op: 'check', key: 'k', version: bad }]) }]);
}
for (const [what, limit] of Object.entries(badLimits)) {
  rows.push([`limit: ${what}`, 'INVALID_ARGUMENT', {
    list: (store) => store.entries.list('', { limit }),
    queryLocks: (store) => store.queryLocks('', { limit }),
    purgeLapsed: (store) => store.purgeLapsed({ limit }),
    'window.take': (store) => store.window.take({ limit }),
    'window.claim': (store) => store.window.claim({ lease: 5, limit }),
    'window.list': (store) => store.window.list({ limit }),
    maxLocks: async () => manual({ maxLocks: limit }),
    maxEntries: async () => manual({ maxEntries: limit }),
    maxBytes: async () => manual({ maxBytes: limit }),
  }]);
}
for (const [what, at] of Object.entries(badInstants)) {
  rows.push([`instant: ${what}`, 'INVALID_ARGUMENT', {
    'window.stage': (store) => store.window.stage([{ key: 'a', visibleAfter: at }]),
    'window.requeue': (store) => store.window.requeue([], { visibleAfter: at }),
    atomic: (store) => store.atomic([{ op: 'stage', key: 'a', visibleAfter: at }]),
    tx: async (store) => store.sync.tx((tx) => tx.stage('a', at)),
    'window.list': (store) => store.window.list({ after: { key: 'a', visibleAfter: at } }),
    ...(at === undefined ? {} : {
      'window.take': (store) => store.window.take({ now: at }),
      'window.claim': (store) => store.window.claim({ now: at, lease: 5 }),
      'window.stats': (store) => store.window.stats({ now: at }),
    }),
  }]);
}
for (const [what, bad] of Object.entries(notObjects)) {
  rows.push([`no options: ${what}`, 'INVALID_ARGUMENT', {
    tryLock: (store) => store.tryLock('a', bad),
    forceRelease: (store) => store.forceRelease('a', bad),
    lease: async (store) => store.lease(bad),
    put: (store) => store.entries.put('k', value, bad),
    guard: (store) => store.entries.put('k', value, { guard: bad }),
    delete: (store) => store.entries.delete('k', bad),
    list: (store) => store.entries.list('', bad),
    atomic: (store) => store.atomic([bad]),
    'window.stage': (store) => store.window.stage([bad]),
    'window.take': (store) => store.window.take(bad),
    'window.mark': (store) => store.window.mark([bad]),
    'window.finish': (store) => store.window.finish([], bad),
    'window.list': (store) => store.window.list(bad),
    'window.list after': (store) => store.window.list({ after: bad }),
    'window.stats': (store) => store.window.stats(bad),
    purgeLapsed: (store) => store.purgeLapsed(bad),
  }]);
  rows.push([`no list: ${what}`, 'INVALID_ARGUMENT', {
    atomic: (store) => store.atomic(bad),
    'window.stage': (store) => store.window.stage(bad),
    'window.unstage': (store) => store.window.unstage(bad),
    'window.settle': (store) => store.window.settle(bad),
    'window.requeue': (store) => store.window.requeue(bad, { visibleAfter: 1 }),
    'window.mark': (store) => store.window.mark(bad),
    'window.finish': (store) => store.window.finish(bad),
    'window.delete': (store) => store.window.delete(bad),
    'window.judge': (store) => store.window.judge(bad),
  }]);
}
rows.push(['an option that nobody knows', 'INVALID_ARGUMENT', {
  tryLock: (store) => store.tryLock('a', { ttl: 5, wait: true }),
  put: (store) => store.entries.put('k', value, { mode: 'create' }),
  putIfAbsent: (store) => store.entries.putIfAbsent('k', value, { ifVersion: 1 }),
  delete: (store) => store.entries.delete('k', { version: 1 }),
  list: (store) => store.entries.list('', { prefix: 'a' }),
  atomic: (store) => store.atomic([{ op: 'delete', key: 'k', ifVersion: 1 }]),
  'window.stage': (store) => store.window.stage([], { keep: true }),
  'window.take': (store) => store.window.take({ at: 1 }),
  'window.mark': (store) => store.window.mark([], { fence: 1 }),
  'window.list': (store) => store.window.list({ from: 1 }),
  'window.stats': (store) => store.window.stats({ at: 1 }),
  restage: (store) => store.window.stage([], { restage: 'always' }),
}]);
rows.push(['prefix', 'INVALID_ARGUMENT', {
  'list: 1025 bytes': (store) => store.entries.list('k'.repeat(1025)),
  'list: 1 MB': (store) => store.entries.list('k'.repeat(MB)),
  'list: number': (store) => store.entries.list(5),
  'list after: 1 MB': (store) => store.entries.list('', { after: new Uint8Array(MB) }),
  'list after: null': (store) => store.entries.list('', { after: null }),
  'list: lone surrogate': (store) => store.entries.list('\ud800'),
  'queryLocks: 513 bytes': (store) => store.queryLocks(LONG),
  'queryLocks: 1 MB': (store) => store.queryLocks('k'.repeat(MB)),
  'queryLocks: bytes': (store) => store.queryLocks(bytes('a')),
  'queryLocks after: number': (store) => store.queryLocks('', { after: 5 }),
}]);

/** A store with something of each kind in it, whose names and keys are remembered. */
function furnished() {
  const { store, sync, clock } = manual();
  for (let again = 0; again < 3; again++) sync.tryLock('held', { ttl: 50 })?.release();
  const held = sync.tryLock('held', { ttl: 50 });
  for (let again = 0; again < 3; again++) sync.entries.put('k', value);
  sync.window.stage([{ key: 'waiting', visibleAfter: 5 }]);
  return { store, sync, clock, given: { held, parts: held.toJSON() } };
}

for (const [what, code, calls] of rows) {
  test(`bad input: ${what}: ${code}`, async () => {
    const { store, sync, given } = furnished();
    const before = sync.snapshot();
    for (const [where, call] of Object.entries(calls)) {
      // A call with promises never throws by itself.
      await rejected(code, call(store, given), where);
      assert.deepEqual(sync.snapshot(), before, where);
      const asSync = call.toString().includes('store.sync') || call.constructor.name === 'AsyncFunction';
      if (!asSync) {
        thrown(code, () => call(sync, given), `${where}, without promises`);
        assert.deepEqual(sync.snapshot(), before, where);
      }
    }
  });
}

test('strange but valid input is accepted', () => {
  const { sync } = manual();
  for (const name of ['x'.repeat(512), '\u20ac'.repeat(170) + 'xx', '__alkstor', ' a ', '\ufeff\u200b', '\u{1f600}']) {
    assert.equal(sync.tryLock(name, { ttl: 5, owner: name }).owner, name);
    assert.equal(sync.lockInfo(name).name, name);
  }
  assert.ok(sync.tryLock('a', { ttl: 5, owner: '__alkstore_x' }));
  for (const [ttl, expected] of [[0.25, 1_000_000.25], [3_155_760_000_000, 3_155_761_000_000], [1e-6, 1_000_000.000001]]) {
    const lease = sync.tryLock(`ttl ${ttl}`, { ttl });
    assert.ok(Math.abs(lease.expiresAt - expected) < 1e-6, `${lease.expiresAt}`);
  }
  sync.entries.put('k'.repeat(1024), value);
  sync.entries.put('\u{1f600}'.repeat(256), value);
  sync.entries.put(new Uint8Array(1024), new Uint8Array(0));
  assert.equal(sync.entries.get(new Uint8Array(1024)).length, 0);
});

test('a value at the limit', () => {
  const { entries } = manual().sync;
  const large = new Uint8Array(64 * MB).fill(7);
  assert.equal(entries.put('k', large).stored, true);
  assert.equal(entries.get('k').length, 64 * MB);
});

test('arguments are judged in order: name, owner, duration, then the closed store', () => {
  const { sync, given } = furnished();
  sync.close();
  thrown('INVALID_NAME', () => sync.tryLock('', { ttl: 0, owner: '' }));
  thrown('INVALID_NAME', () => sync.tryLock('a', { ttl: 0, owner: '' }));
  thrown('INVALID_DURATION', () => sync.tryLock('a', { ttl: 0, owner: 'o' }));
  thrown('INVALID_DURATION', () => given.held.renew(0));
  thrown('INVALID_ARGUMENT', () => sync.entries.get(''));
  thrown('INVALID_DURATION', () => sync.entries.put('k', value, { ttl: 0 }));
  thrown('CLOSED', () => sync.tryLock('a', { ttl: 5, owner: 'o' }));
  thrown('CLOSED', () => given.held.renew(5));
});

test('messages show neither values nor control characters', () => {
  const { sync } = manual();
  const error = thrown('RESERVED_NAME', () => sync.tryLock('__alkstore_\n\u202e', { ttl: 5 }));
  assert.ok(!/[\n\u202e]/.test(error.message), error.message);
  const secret = 'hunter2-very-secret';
  for (const fail of [() => sync.entries.put('k', secret), () => sync.tryLock({ secret }, { ttl: 5 }), () => sync.tryLock('a', secret)]) {
    const { message, cause } = thrown('INVALID_ARGUMENT', fail);
    assert.ok(!`${message} ${cause?.message}`.includes(secret) && !message.includes('hunter2'), `${message} ${cause?.message}`);
  }
});

test("a snapshot's own properties say nothing of its length", () => {
  const { sync } = manual();
  for (const length of [3, 2 ** 30, NaN]) {
    const snapshot = Object.defineProperty(sync.snapshot(), 'length', { value: length });
    const { wasmBytes } = sync.stats();
    sync.restore(snapshot);
    assert.equal(sync.stats().wasmBytes, wasmBytes);
  }
});

test('options that are left out are not looked for in Object.prototype', () => {
  const { sync } = manual();
  sync.entries.put('k', value);
  for (const [name, given] of Object.entries({ ttl: 1, ifVersion: 99, guard: { name: 'a', token: 1 }, limit: 0 })) {
    Object.defineProperty(Object.prototype, name, { value: given, configurable: true });
    try {
      assert.equal(sync.entries.put('k', value).stored, true, name);
      assert.equal(sync.entries.getEntry('k').expiresAt, null, name);
      assert.equal(sync.entries.list().length, 1, name);
    } finally {
      delete Object.prototype[name];
    }
  }
});
