import assert from 'node:assert/strict';
import test, { mock } from 'node:test';
import { AlkError, open, openSync } from 'alkstore';
import * as slim from 'alkstore/slim';
import { bytes, capped, manual, rejected, text, thrown } from './support.mjs';

function furnished() {
  const { store, sync, clock } = manual();
  sync.tryLock('a', { ttl: 50 });
  sync.tryLock('b', { ttl: 60, owner: 'o' });
  sync.entries.put('k', bytes('value'), { ttl: 70 });
  sync.entries.put('l', new Uint8Array(0));
  sync.window.stage([{ key: 'w', visibleAfter: 5 }, { key: 'x', visibleAfter: 6 }]);
  sync.window.claim({ lease: 10, limit: 1 });
  return { store, sync, clock };
}

const sight = ({ sync }) => ({
  locks: sync.queryLocks().held,
  entries: sync.entries.list().map((row) => ({ ...row, value: sync.entries.get(row.key) })),
});

test('a snapshot comes back whole, and later revisions are above all earlier ones', async () => {
  const from = furnished();
  const snapshot = await from.store.snapshot();
  const to = manual();
  const old = to.sync.tryLock('gone', { ttl: 50 });
  await to.store.restore(snapshot);
  assert.deepEqual(sight(to), sight(from));
  assert.equal(old.renew(), false);
  assert.equal(to.sync.lease({ name: 'b', owner: 'o', token: 2 }).renew(5), true);
  assert.ok(to.sync.tryLock('new', { ttl: 5 }).token > 2 ** 32);
  assert.deepEqual(to.sync.window.take().map((row) => text(row.key)), ['x'], 'w is under its claim');
  assert.equal(to.sync.entries.put('k', bytes('mine'), { ifVersion: 3 }).stored, true);
  for (const view of [snapshot.buffer, new DataView(snapshot.buffer), Buffer.from(snapshot)]) await to.store.restore(view);
});

test('hostile snapshots: cut at every byte, each bit flipped, and other odd bytes', () => {
  const snapshot = furnished().sync.snapshot();
  const { sync } = manual();
  sync.entries.put('mine', bytes('v'));
  const before = sync.snapshot();
  const memory = sync.stats().wasmBytes;
  const refuse = (what, mutant) => {
    let error;
    try {
      sync.restore(mutant);
    } catch (caught) {
      error = caught;
    }
    assert.ok(error instanceof AlkError, `${what} was taken`);
    assert.ok(['SNAPSHOT', 'VERSION'].includes(error.code), `${what}: ${error.code}`);
    assert.ok(error.cause.message, what);
  };
  for (let length = 0; length < snapshot.length; length++) refuse(`cut at ${length}`, snapshot.subarray(0, length));
  for (let bit = 0; bit < snapshot.length * 8; bit++) {
    const mutant = snapshot.slice();
    mutant[bit >> 3] ^= 1 << (bit & 7);
    refuse(`bit ${bit}`, mutant);
  }
  refuse('trailing bytes', Uint8Array.of(...snapshot, 0));
  refuse('text', bytes('what is this'));
  const newer = snapshot.slice();
  newer[8] = 3;
  assert.equal(thrown('VERSION', () => sync.restore(newer)).retryable, false);
  assert.deepEqual(sync.snapshot(), before);
  assert.equal(sync.stats().wasmBytes, memory);
});

test('closing is final, twice is fine, and disposing after it does not throw', async () => {
  const { store, sync } = furnished();
  const lease = await store.tryLock('c', { ttl: 50 });
  const other = sync.tryLock('d', { ttl: 50 });
  await store.close();
  await store.close();
  sync.close();
  await rejected('CLOSED', lease.renew());
  await rejected('CLOSED', lease.release());
  const calls = {
    tryLock: (s) => s.tryLock('a', { ttl: 5 }),
    'tryLock of a remembered name': (s) => s.tryLock('b', { ttl: 5 }),
    lockInfo: (s) => s.lockInfo('a'),
    queryLocks: (s) => s.queryLocks(),
    forceRelease: (s) => s.forceRelease('a', { token: 1 }),
    get: (s) => s.entries.get('k'),
    getEntry: (s) => s.entries.getEntry('k'),
    has: (s) => s.entries.has('k'),
    put: (s) => s.entries.put('k', bytes('v')),
    putIfAbsent: (s) => s.entries.putIfAbsent('k', bytes('v')),
    touch: (s) => s.entries.touch('k', 5),
    delete: (s) => s.entries.delete('k'),
    list: (s) => s.entries.list(),
    atomic: (s) => s.atomic([]),
    stage: (s) => s.window.stage([]),
    unstage: (s) => s.window.unstage([]),
    take: (s) => s.window.take(),
    claim: (s) => s.window.claim({ lease: 5 }),
    settle: (s) => s.window.settle([]),
    requeue: (s) => s.window.requeue([], { visibleAfter: 5 }),
    mark: (s) => s.window.mark([]),
    finish: (s) => s.window.finish([]),
    'delete of claims': (s) => s.window.delete([]),
    judge: (s) => s.window.judge([]),
    'list of the window': (s) => s.window.list(),
    'list of the window after a row': (s) => s.window.list({ after: { key: 'a', visibleAfter: 5 } }),
    info: (s) => s.window.info('a'),
    'stats of the window': (s) => s.window.stats(),
    beginSweep: (s) => s.window.beginSweep(5),
    extendSweep: (s) => s.window.extendSweep(1, 5),
    endSweep: (s) => s.window.endSweep(1),
    purgeLapsed: (s) => s.purgeLapsed(),
    snapshot: (s) => s.snapshot(),
    restore: (s) => s.restore(new Uint8Array(5)),
    stats: (s) => s.stats(),
    now: (s) => s.now(),
  };
  for (const [what, call] of Object.entries(calls)) {
    await rejected('CLOSED', call(store), what);
    thrown('CLOSED', () => call(sync), what);
  }
  thrown('CLOSED', () => store.lease({ name: 'a', owner: 'o', token: 1 }));
  thrown('CLOSED', () => sync.tx(() => {}));
  await lease[Symbol.asyncDispose]();
  other[Symbol.dispose]();
  await store[Symbol.asyncDispose]();
  sync[Symbol.dispose]();
});

test('disposing a lease releases it, disposing a store closes it', async () => {
  const { store, sync } = manual();
  const lease = await store.tryLock('a', { ttl: 5 });
  await lease[Symbol.asyncDispose]();
  assert.equal(sync.lockInfo('a'), null);
  await lease[Symbol.asyncDispose]();
  sync.tryLock('a', { ttl: 5 })[Symbol.dispose]();
  assert.equal(sync.lockInfo('a'), null);
  await store[Symbol.asyncDispose]();
  thrown('CLOSED', () => sync.now());
});

test('a clock may not use the store that reads it', async () => {
  let nested;
  const inside = [];
  const store = openSync({
    clock: () => {
      if (nested) {
        const call = nested;
        nested = undefined;
        inside.push(thrown('DATABASE', call));
      }
      return 5;
    },
  });
  const { sync } = store;
  const lease = sync.tryLock('a', { ttl: 5 });
  for (const call of [() => sync.tryLock('b', { ttl: 5 }), () => lease.release(), () => sync.entries.get('k'), () => sync.stats(), () => sync.tx(() => {}), () => lease.signal]) {
    nested = call;
    assert.equal(sync.now(), 5);
  }
  assert.equal(inside.length, 6);
  assert.match(inside[0].message, /its own clock/);
  nested = () => sync.now();
  assert.equal(await store.entries.get('k'), null);
  assert.equal(lease.release(), true, 'and the store goes on');
});

test('what runs while a call is prepared does not change what it names', () => {
  let meddle = () => {};
  const { sync } = openSync({
    clock: () => {
      try {
        meddle();
      } catch {
        // It is refused, of course.
      }
      return 5;
    },
  });
  meddle = () => {
    meddle = () => {};
    sync.tryLock('other', { ttl: 5, owner: 'other' });
  };
  assert.equal(sync.tryLock('mine', { ttl: 5, owner: 'me' }).owner, 'me');
  meddle = () => sync.entries.put('other', bytes('x'));
  sync.entries.put('mine', bytes('v'));
  meddle = () => {};
  const sly = {
    get name() {
      sync.entries.put('others', bytes('x'));
      return 'mine';
    },
    token: 1,
  };
  sync.entries.put('fenced', bytes('v'), { guard: sly });
  assert.deepEqual(sync.queryLocks().held.map((row) => [row.name, row.owner]), [['mine', 'me']]);
  assert.deepEqual(sync.entries.list().map((row) => text(row.key)), ['fenced', 'mine', 'others']);
});

test('a clock that fails fails the call alone', () => {
  let clock = () => 5;
  const { sync } = openSync({ clock: () => clock() });
  const broken = new Error('broken');
  for (const bad of [() => { throw broken; }, () => NaN, () => '5', () => 5n, () => undefined, async () => 5]) {
    clock = bad;
    thrown('INVALID_ARGUMENT', () => sync.tryLock('a', { ttl: 5 }));
    thrown('INVALID_ARGUMENT', () => sync.entries.put('k', bytes('v')));
  }
  clock = () => { throw broken; };
  assert.equal(thrown('INVALID_ARGUMENT', () => sync.now()).cause, broken);
  clock = () => Infinity;
  assert.equal(sync.tryLock('a', { ttl: 5 }).release(), true, 'an instant beyond the range is its end');
  clock = () => 5;
  assert.deepEqual([sync.stats().entries, sync.now()], [0, 5]);
  thrown('INVALID_ARGUMENT', () => openSync({ clock: 5 }));
});

test('the default clock goes on where the time of day is set back, and follows it forward', () => {
  mock.timers.enable({ apis: ['Date'], now: 1_000_000 });
  const real = globalThis.performance;
  let monotonic = 50;
  Object.defineProperty(globalThis, 'performance', { value: { now: () => monotonic }, configurable: true, writable: true });
  try {
    const { sync } = openSync();
    assert.equal(sync.now(), 1_000_000);
    mock.timers.setTime(1_005_000);
    monotonic += 5000;
    assert.equal(sync.now(), 1_005_000);
    mock.timers.setTime(1_004_995);
    assert.equal(sync.now(), 1_005_000, 'jitter stands still');
    mock.timers.setTime(500_000);
    monotonic += 1000;
    assert.equal(sync.now(), 1_006_000, 'set back: on at the pace of the monotonic clock');
    mock.timers.setTime(500_700);
    assert.equal(sync.now(), 1_006_700);
    mock.timers.setTime(900_000);
    assert.equal(sync.now(), 1_406_000, 'forward at once');
    delete globalThis.performance;
    globalThis.performance = undefined;
    const bare = openSync().sync;
    assert.equal(bare.now(), 900_000);
    mock.timers.setTime(1000);
    assert.equal(bare.now(), 900_000, 'without a monotonic clock it stands still');
    mock.timers.setTime(1500);
    assert.equal(bare.now(), 900_500);
  } finally {
    Object.defineProperty(globalThis, 'performance', { value: real, configurable: true, writable: true });
    mock.timers.reset();
  }
});

test('a trap poisons its store for good, and no other', async () => {
  // Memory really ends here, in the middle of whatever the engine is doing.
  const store = await slim.open({ module: capped(4) });
  const { sync } = store;
  const lease = await store.tryLock('first', { ttl: 1e9 });
  const { signal } = lease;
  const other = openSync().sync;
  const kept = other.tryLock('first', { ttl: 1e9 });
  let error;
  for (let i = 0; i < 100_000 && !error; i++) {
    try {
      sync.tryLock(`${i}`.padEnd(500, 'x'), { ttl: 1e9 });
    } catch (caught) {
      error = caught;
    }
  }
  assert.equal(error?.code, 'POISONED');
  assert.ok(error.cause instanceof WebAssembly.RuntimeError);
  assert.equal(signal.aborted, true);
  assert.equal(signal.reason.code, 'LEASE_LOST');
  for (let again = 0; again < 2; again++) {
    await rejected('POISONED', lease.renew());
    await rejected('POISONED', lease.release());
    await rejected('POISONED', store.tryLock('first', { ttl: 5 }));
    await rejected('POISONED', store.entries.get('k'));
    thrown('POISONED', () => sync.tx(() => {}));
    thrown('POISONED', () => sync.stats());
    thrown('POISONED', () => sync.restore(new Uint8Array(5)));
  }
  await lease[Symbol.asyncDispose]();
  await store.close();
  await store[Symbol.asyncDispose]();
  assert.equal(kept.renew(), true);
  assert.equal((await slim.open({ module: capped(4) })).sync.tryLock('first', { ttl: 5 }).token, 1);
});

test('memory that ends while a snapshot is copied in is CAPACITY, and the store goes on', async () => {
  const { sync } = await slim.open({ module: capped(2) });
  sync.tryLock('a', { ttl: 1e9 });
  thrown('CAPACITY', () => sync.restore(new Uint8Array(1 << 20)));
  sync.entries.put('large', new Uint8Array(1 << 20));
  thrown('CAPACITY', () => sync.snapshot());
  assert.equal(sync.queryLocks().held.length, 1);
  assert.equal(sync.entries.get('large').length, 1 << 20);
});

test('errors tell what they are', async () => {
  const error = await rejected('CLOSED', openClosed());
  assert.ok(error instanceof Error);
  assert.ok(error instanceof AlkError);
  assert.deepEqual([error.name, error.retryable, error.outcomeUnknown, error.owner], ['AlkError', false, false, undefined]);
  assert.match(String(error), /^AlkError: the store is closed/);
  const own = new AlkError('ABORTED', 'm', { owner: 'o', outcomeUnknown: true, retryable: true, cause: 5 });
  assert.deepEqual([own.code, own.message, own.owner, own.outcomeUnknown, own.retryable, own.cause], ['ABORTED', 'm', 'o', true, true, 5]);

  async function openClosed() {
    const store = await open();
    await store.close();
    return store.now();
  }
});
