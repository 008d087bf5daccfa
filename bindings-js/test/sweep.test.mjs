// The sweep, driven from outside. Its clock is moved by hand; where it waits for time, that is a timer of the test's.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import test from 'node:test';
import { bytes, manual, rejected, ROOT, text, thrown } from './support.mjs';

const COUNTS = {
  dryRun: false, examined: 0, deleted: 0, bytesFreed: 0, alreadyAbsent: 0, protectedByPin: 0, protectedByLiveness: 0,
  protectedByPublication: 0, failed: 0, lostLease: 0, requeued: 0, oldestOverdue: null, error: null,
};
const nothingIsLive = (keys) => keys.map(() => false);
const names = (rows) => rows.map((row) => text(row.key ?? row));

/** A store with entries `prefix0`, `prefix1`, ... of five bytes each, due for a second. */
function due(count, prefix = 'k') {
  const { store, sync, clock } = manual();
  stage(sync, clock, count, prefix);
  return { store, sync, clock };
}

function stage(sync, clock, count, prefix = 'k') {
  const keys = Array.from({ length: count }, (_, index) => `${prefix}${index}`);
  for (const key of keys) sync.entries.put(key, bytes('value'));
  sync.window.stage(keys.map((key) => ({ key, visibleAfter: clock.now - 1000 })));
}

test('a dry run predicts the run', async () => {
  const { store, sync, clock } = due(10);
  sync.entries.delete('k3');
  sync.window.stage([{ key: 'later', visibleAfter: clock.now + 1 }]);
  const liveness = (keys) => names(keys).map((key) => key === 'k5' || key === 'k6');
  const before = sync.snapshot();
  const expected = { ...COUNTS, examined: 10, deleted: 7, bytesFreed: 35, alreadyAbsent: 1, protectedByLiveness: 2, oldestOverdue: 1000, stop: { reason: 'drained' } };
  assert.deepEqual(await store.sweep({ liveness, batch: 3, dryRun: true }), { ...expected, dryRun: true });
  assert.deepEqual(sync.snapshot(), before);
  assert.deepEqual(await store.sweep({ liveness, batch: 3 }), expected);
  assert.deepEqual(names(sync.entries.list()), ['k5', 'k6']);
  assert.deepEqual(names(sync.window.list()), ['later']);
  assert.deepEqual(await store.sweep({ liveness }), { ...COUNTS, stop: { reason: 'drained' } });
});

test('nothing is garbage by default', async () => {
  const { store, sync } = due(2);
  assert.deepEqual(await store.sweep(), { ...COUNTS, stop: { reason: 'aborted', cause: 'NO_LIVENESS_SOURCES' } });
  assert.equal(sync.stats().window, 2);
  assert.equal((await store.sweep({ windowDecides: true })).deleted, 2);
});

test('whoever cannot tell what is live protects it', async () => {
  const mine = new Error('mine');
  const failing = {
    throws: () => { throw mine; },
    rejects: async () => { throw mine; },
    'answers too few': () => [false],
    'answers too many': (keys) => [...nothingIsLive(keys), false],
    'answers nothing': () => undefined,
    'answers a set': (keys) => new Set(keys),
    'answers with something else': (keys) => keys.map(() => 0),
    'empties its question': (keys) => keys.splice(0),
    'answers with a trap': (keys) => Object.defineProperty(nothingIsLive(keys), 0, { get: () => { throw mine; } }),
  };
  for (const [what, liveness] of Object.entries(failing)) {
    const { store, sync } = due(3);
    const report = await store.sweep({ liveness });
    assert.deepEqual(report.stop, { reason: 'aborted', cause: 'LIVENESS_FAILED' }, what);
    assert.deepEqual([report.examined, report.deleted], [0, 0], what);
    assert.deepEqual([report.error.name, report.error.code], ['AlkError', 'DATABASE'], what);
    if (/throws|rejects|trap/.test(what)) assert.equal(report.error.cause, mine, what);
    else assert.equal(report.error.cause.code, 'INVALID_ARGUMENT', what);
    assert.equal(sync.entries.list().length, 3, what);
    assert.equal(sync.window.claim({ lease: 5 }).length, 3, `${what}: what was in hand is put back`);
  }
});

test('a question that takes too long protects', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { store, sync } = due(3);
  const sweeping = store.sweep({ liveness: () => new Promise(() => {}), hookTimeout: 500 });
  await settled();
  t.mock.timers.tick(499);
  assert.equal(sync.stats().window, 3);
  t.mock.timers.tick(1);
  const report = await sweeping;
  assert.deepEqual(report.stop, { reason: 'aborted', cause: 'LIVENESS_FAILED' });
  assert.match(report.error.message, /longer than its timeout/);
  assert.equal(sync.entries.list().length, 3);
});

/** After all promises that wait for nothing. */
const settled = () => new Promise((done) => setImmediate(done));

test('an answer that comes too late is no answer', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { store, sync } = due(1);
  let answer;
  const sweeping = store.sweep({ liveness: () => new Promise((resolve) => { answer = resolve; }), hookTimeout: 500 });
  await settled();
  t.mock.timers.tick(500);
  answer([false]);
  assert.equal((await sweeping).stop.cause, 'LIVENESS_FAILED');
  assert.equal(sync.entries.list().length, 1);
});

test('aborting ends it between two batches', async () => {
  const { store, sync } = due(9);
  const controller = new AbortController();
  const seen = [];
  const onProgress = (report) => {
    seen.push([report.examined, report.stop.reason]);
    if (report.examined === 4) controller.abort();
  };
  const report = await store.sweep({ windowDecides: true, batch: 2, signal: controller.signal, onProgress });
  assert.deepEqual(seen, [[2, 'running'], [4, 'running']]);
  assert.deepEqual([report.deleted, report.stop, report.error], [4, { reason: 'cancelled' }, null]);
  assert.equal(sync.window.claim({ lease: 5 }).length, 5);
  const again = await store.sweep({ windowDecides: true, signal: controller.signal });
  assert.deepEqual([again.examined, again.stop.reason], [0, 'cancelled']);
});

test('a signal that throws leaves no sweep under way', async () => {
  const mine = new Error('mine');
  const nothing = () => {};
  const throws = () => { throw mine; };
  const signals = [
    { aborted: false, addEventListener: throws, removeEventListener: nothing },
    { aborted: false, addEventListener: nothing, removeEventListener: throws },
  ];
  for (const signal of signals) {
    const { store, sync, clock } = due(2);
    await assert.rejects(store.sweep({ windowDecides: true, signal }), mine);
    stage(sync, clock, 3);
    assert.equal((await store.sweep({ windowDecides: true })).deleted, 3);
  }
});

test('aborting withdraws a question that nobody answers', async () => {
  const { store, sync } = due(3);
  const controller = new AbortController();
  const sweeping = store.sweep({ liveness: () => new Promise(() => {}), signal: controller.signal });
  await settled();
  controller.abort();
  const report = await sweeping;
  assert.deepEqual([report.stop, report.error, report.examined], [{ reason: 'cancelled' }, null, 0]);
  assert.equal(sync.window.claim({ lease: 5 }).length, 3);
});

test('aborting awaits a payload that is on its way out', async () => {
  const { store, sync } = due(4);
  const controller = new AbortController();
  const reclaim = async (keys) => {
    controller.abort();
    await settled();
    return keys.map(() => 70);
  };
  const report = await store.sweep({ windowDecides: true, reclaim, batch: 2, signal: controller.signal });
  assert.deepEqual([report.deleted, report.bytesFreed, report.stop.reason], [2, 140, 'cancelled']);
  assert.deepEqual(names(sync.entries.list()), ['k2', 'k3']);
});

test('what onProgress throws ends the sweep, and its keys can be swept at once', async () => {
  const { store, sync } = due(4);
  const mine = new Error('mine');
  await assert.rejects(store.sweep({ windowDecides: true, batch: 2, onProgress: () => { throw mine; } }), (error) => error === mine);
  assert.equal(sync.entries.list().length, 2);
  assert.equal((await store.sweep({ windowDecides: true })).deleted, 2);
});

test('payloads go before their entries, and nobody trusts an entry whose payload goes', async () => {
  const { store, sync } = due(3);
  const reclaim = async (keys) => {
    for (const key of keys) {
      assert.equal(text(sync.entries.get(key)), 'value', 'the entry tells where the payload lies');
      assert.equal(sync.window.info(key).reclaiming, true);
      assert.equal((await rejected('CONFLICT', store.entries.putIfAbsent(key, bytes('new')))).retryable, true);
    }
    return names(keys).map((key) => (key === 'k1' ? null : 100));
  };
  const measure = (keys) => names(keys).map((key) => (key === 'k1' ? null : 100));
  const dry = await store.sweep({ windowDecides: true, reclaim, measure, dryRun: true });
  const report = await store.sweep({ windowDecides: true, reclaim, measure });
  assert.deepEqual([report.deleted, report.bytesFreed, report.stop.reason], [3, 200, 'drained']);
  assert.deepEqual({ ...dry, dryRun: false }, report);
  assert.equal(sync.entries.putIfAbsent('k0', bytes('new')).stored, true);
});

test('a payload that cannot be deleted backs off, twice as long each time, and others go on', async () => {
  const { store, sync, clock } = due(3);
  const mine = new Error('mine');
  const answers = { k0: mine, k1: 5, k2: undefined };
  const reclaim = (keys) => names(keys).map((key) => answers[key]);
  const report = await store.sweep({ windowDecides: true, reclaim });
  assert.deepEqual([report.examined, report.deleted, report.failed, report.requeued], [3, 1, 2, 2]);
  assert.equal(report.error.cause.code, 'INVALID_ARGUMENT', 'the last that failed');
  assert.deepEqual(sync.window.list().map((row) => [text(row.key), row.visibleAfter - clock.now, row.reclaiming, row.requeues]), [['k0', 1000, true, 1], ['k2', 1000, true, 1]]);
  assert.equal((await store.sweep({ windowDecides: true, reclaim })).examined, 0);
  clock.now += 1000;
  answers.k2 = null;
  const next = await store.sweep({ windowDecides: true, reclaim });
  assert.deepEqual([next.deleted, next.bytesFreed, next.failed, next.error.cause], [1, 0, 1, mine]);
  assert.equal(sync.window.info('k0').visibleAfter - clock.now, 2000);
  for (const fails of [() => { throw mine; }, async () => { throw mine; }, () => [], () => 5]) {
    clock.now += 3_600_000;
    const { failed, error } = await store.sweep({ windowDecides: true, reclaim: fails });
    assert.equal(failed, 1);
    assert.ok(error.cause === mine || error.cause.code === 'INVALID_ARGUMENT');
  }
  clock.now += 3_600_000;
  const without = await store.sweep({ windowDecides: true });
  assert.deepEqual([without.failed, without.deleted], [1, 0], 'what has a payload is left to those who know it');
});

test('R8: a payload that goes late meets no new writer: the key takes no write until it has gone', async () => {
  const { store, sync } = due(1);
  const payloads = new Map([['k0', 'old']]);
  let gone;
  const reclaim = async (keys) => {
    await new Promise((resolve) => { gone = resolve; });
    for (const key of names(keys)) payloads.delete(key);
    return keys.map(() => 3);
  };
  const sweeping = store.sweep({ windowDecides: true, reclaim });
  await settled();
  thrown('CONFLICT', () => sync.entries.putIfAbsent('k0', bytes('new')));
  gone();
  await sweeping;
  payloads.set('k0', 'new');
  assert.equal(sync.entries.putIfAbsent('k0', bytes('new')).stored, true);
  assert.equal(payloads.get('k0'), 'new');
});

test('R10: a sweep that dies between payload and entry is finished by the next', async () => {
  const { store, sync, clock } = due(1);
  let dead = true;
  const reclaim = () => (dead ? new Promise(() => {}) : [null]);
  const dying = store.sweep({ windowDecides: true, reclaim });
  await settled();
  // The process ends here; what it had in the store is found by another.
  const other = manual();
  other.sync.restore(sync.snapshot());
  dead = false;
  other.clock.now = clock.now;
  thrown('CONFLICT', () => other.sync.entries.putIfAbsent('k0', bytes('new')));
  assert.equal((await other.store.sweep({ windowDecides: true, reclaim })).examined, 0, 'its claim is live');
  other.clock.now += 60_000;
  const report = await other.store.sweep({ windowDecides: true, reclaim });
  assert.deepEqual([report.deleted, report.bytesFreed], [1, 0]);
  assert.equal(other.sync.stats().entries, 0);
  await store.close();
  await rejected('CLOSED', dying);
});

test('one sweep at a time', async () => {
  const { store, sync } = due(2);
  const second = [];
  const liveness = async (keys) => {
    second.push(await store.sweep({ windowDecides: true }), await store.sweep({ windowDecides: true, dryRun: true }));
    return nothingIsLive(keys);
  };
  const report = await store.sweep({ liveness });
  assert.equal(report.deleted, 2);
  const refused = { ...COUNTS, stop: { reason: 'aborted', cause: 'SWEEPER_LOCK' } };
  assert.deepEqual(second, [refused, { ...refused, dryRun: true }]);
  const epoch = sync.window.beginSweep(50);
  assert.deepEqual(await store.sweep({ windowDecides: true }), refused);
  assert.equal(sync.window.endSweep(epoch), true);
  assert.equal((await store.sweep({ windowDecides: true })).stop.reason, 'drained');
});

test('whoever is asked may use the store', async () => {
  const { store, sync, clock } = due(3);
  const liveness = async (keys) => {
    sync.entries.put('noted', bytes(`${keys.length}`));
    await store.entries.putIfAbsent('k0', bytes('again'));
    const lease = await store.tryLock('l', { ttl: 5 });
    await lease.release();
    sync.tx((tx) => tx.stage('more', clock.now - 1));
    return nothingIsLive(keys);
  };
  const report = await store.sweep({ liveness });
  assert.deepEqual([report.examined, report.deleted, report.protectedByPublication, report.alreadyAbsent], [4, 2, 1, 1]);
  assert.deepEqual(names(sync.entries.list()), ['k0', 'noted']);
});

test('a store that is closed in mid-sweep ends it, with nothing half done', async () => {
  for (const [what, options] of Object.entries({
    'by liveness': (close) => ({ liveness: (keys) => (close(), nothingIsLive(keys)) }),
    'while nobody answers': (close) => ({ liveness: () => (queueMicrotask(close), new Promise(() => {})) }),
    'by reclaim': (close) => ({ windowDecides: true, reclaim: (keys) => (close(), keys.map(() => 1)) }),
    'by onProgress': (close) => ({ windowDecides: true, batch: 1, onProgress: close }),
  })) {
    const { store } = due(3);
    await rejected('CLOSED', store.sweep(options(() => store.sync.close())), what);
    await rejected('CLOSED', store.sweep({ windowDecides: true }), what);
  }
});

test('a restored store is not being swept', async () => {
  const { store, sync } = due(2);
  const before = sync.snapshot();
  const report = await store.sweep({ liveness: (keys) => (sync.restore(before), nothingIsLive(keys)) });
  assert.deepEqual([report.deleted, report.stop], [0, { reason: 'aborted', cause: 'LOST_LEASE' }]);
  assert.equal((await store.sweep({ windowDecides: true })).deleted, 2);
});

test('what a sweep that was left alone had claimed lapses', async () => {
  const { store, sync, clock } = due(2);
  let answer;
  const sweeping = store.sweep({ liveness: () => new Promise((resolve) => { answer = resolve; }), claimLease: 100 });
  await settled();
  assert.deepEqual(sync.window.claim({ lease: 5 }), []);
  clock.now += 100;
  assert.equal(sync.window.claim({ lease: 5 }).length, 2);
  answer([false, false]);
  const report = await sweeping;
  assert.deepEqual([report.deleted, report.stop], [0, { reason: 'aborted', cause: 'LOST_LEASE' }]);
  assert.equal(sync.entries.list().length, 2);
});

test('limits: candidates, time, and candidates a second', async (t) => {
  const { store, clock } = due(20);
  assert.deepEqual((await store.sweep({ windowDecides: true, limit: 0 })).stop, { reason: 'limit' });
  const limited = await store.sweep({ windowDecides: true, limit: 5, batch: 2 });
  assert.deepEqual([limited.examined, limited.stop], [5, { reason: 'limit' }]);
  const timed = await store.sweep({ windowDecides: true, batch: 1, timeLimit: 10, onProgress: () => void (clock.now += 4) });
  assert.deepEqual([timed.examined, timed.stop], [3, { reason: 'timeLimit' }]);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const delays = [];
  const timer = globalThis.setTimeout;
  t.mock.method(globalThis, 'setTimeout', (fire, delay) => {
    delays.push(delay);
    clock.now += delay;
    return timer(fire, 0);
  });
  const rated = store.sweep({ windowDecides: true, batch: 5, rate: 10 });
  for (let rounds = 0; rounds < 9; rounds++) {
    await settled();
    t.mock.timers.tick(1);
  }
  assert.deepEqual([(await rated).examined, delays], [12, [500, 500, 200]]);
});

test('a long sleep is not told of twice', async (t) => {
  const { store, clock } = due(2);
  t.mock.method(globalThis, 'setTimeout', (fire, delay) => {
    clock.now += delay;
    setImmediate(fire);
  });
  const seen = [];
  const report = await store.sweep({ windowDecides: true, batch: 1, rate: 1, onProgress: ({ examined }) => seen.push(examined) });
  assert.deepEqual([report.deleted, seen], [2, [1, 2]]);
});

test('the example of the README says what it says', () => {
  const readme = readFileSync(new URL('node_modules/alkstore/README.md', ROOT), 'utf8');
  const [example] = [...readme.matchAll(/```js\n(.*?)```/gs)].map(([, code]) => code).filter((code) => code.includes('store.sweep'));
  const [, expected] = /console\.log\(.*\); \/\/ (.*)/.exec(example);
  const told = execFileSync(process.execPath, ['--input-type=module'], { cwd: fileURLToPath(ROOT), input: example, encoding: 'utf8' });
  assert.equal(told.trim(), expected);
});

test('it lets others have their turn between batches', async () => {
  const { store } = due(50);
  let turns = 0;
  const other = setInterval(() => { turns += 1; }, 0);
  await store.sweep({ windowDecides: true, batch: 1 });
  clearInterval(other);
  assert.ok(turns > 10, `${turns} turns in 50 batches`);
});

test('a hundred thousand keys', async () => {
  const { store, sync } = due(100_000);
  const report = await store.sweep({ liveness: (keys) => keys.map((key) => key.at(-1) === 0x30) });
  assert.deepEqual([report.examined, report.deleted, report.protectedByLiveness], [100_000, 90_000, 10_000]);
  assert.deepEqual([sync.stats().entries, sync.stats().window], [10_000, 0]);
});

test('what cannot be meant is refused before anything is asked', async () => {
  const { store, sync } = due(2);
  const before = sync.snapshot();
  const never = () => assert.fail('it was asked');
  const fine = { liveness: never };
  const wrong = {
    INVALID_ARGUMENT: [
      5, null, 'text', { ...fine, keep: true }, { sources: [never] }, { liveness: true }, { liveness: null }, { windowDecides: 1 }, { ...fine, dryRun: 'yes' },
      { ...fine, reclaim: {} }, { ...fine, measure: never }, { ...fine, reclaim: never, dryRun: true }, { ...fine, onProgress: 5 }, { ...fine, signal: {} },
      { ...fine, signal: null }, { ...fine, signal: new AbortController() }, { ...fine, signal: { aborted: false, addEventListener: never } },
      ...[0, -1, 1.5, NaN, Infinity, '5', 5n, null].flatMap((number) => [{ ...fine, batch: number }, { ...fine, rate: number }]),
      ...[-1, 1.5, NaN, Infinity, '5', null].map((limit) => ({ ...fine, limit })),
      { ...fine, hookTimeout: 5, claimLease: 5 }, { ...fine, hookTimeout: 60_000 },
    ],
    INVALID_DURATION: [0, -0, -1, NaN, Infinity, 1e300, '5', null, 5n].flatMap((time) => [
      { ...fine, timeLimit: time }, { ...fine, hookTimeout: time }, { ...fine, claimLease: time },
    ]),
  };
  for (const [code, all] of Object.entries(wrong)) {
    for (const [index, options] of all.entries()) {
      await rejected(code, store.sweep(options), `${code} ${index}`);
      assert.deepEqual(sync.snapshot(), before, `${code} ${index}`);
    }
  }
  assert.equal((await store.sweep({ windowDecides: true })).deleted, 2, 'none of them is still under way');
  assert.equal(sync.sweep, undefined);
});
