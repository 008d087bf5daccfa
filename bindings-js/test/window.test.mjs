import assert from 'node:assert/strict';
import test from 'node:test';
import { bytes, manual, rejected, text, thrown } from './support.mjs';

const keys = (rows) => rows.map((row) => text(row.key));

test('candidates are staged, taken when due, and never twice', async () => {
  const { store, clock } = manual();
  const { window } = store;
  await window.stage([{ key: 'b', visibleAfter: clock.now + 2 }, { key: 'a', visibleAfter: clock.now + 1 }, { key: bytes('c'), visibleAfter: clock.now + 9 }]);
  assert.deepEqual(await window.take(), []);
  clock.now += 2;
  assert.deepEqual(await window.take({ limit: 1 }), [{ key: bytes('a'), visibleAfter: clock.now - 1 }]);
  assert.deepEqual(keys(await window.take()), ['b']);
  assert.equal(await window.unstage(['c', 'x', 'a']), 1);
  assert.deepEqual(await window.take({ now: Infinity }), []);
});

test('staging again moves or keeps', () => {
  const { window } = manual().sync;
  window.stage([{ key: 'a', visibleAfter: 5 }]);
  window.stage([{ key: 'a', visibleAfter: 9 }], { restage: 'keep' });
  assert.deepEqual(window.take({ now: 5, limit: 0 }), []);
  window.stage(new Set([{ key: 'a', visibleAfter: 7 }]));
  assert.deepEqual(window.take({ now: 6 }), []);
  assert.equal(window.take({ now: 7 }).length, 1);
});

test('claims are settled, put back, or lapse', () => {
  const { sync, clock } = manual();
  const { window } = sync;
  window.stage(['a', 'b', 'c'].map((key, i) => ({ key, visibleAfter: i })));
  const claims = window.claim({ lease: 10, limit: 2 });
  assert.deepEqual(keys(claims), ['a', 'b']);
  assert.deepEqual([claims[0].visibleAfter, claims[0].until, claims[0].id], [0, clock.now + 10, 1]);
  assert.deepEqual(keys(window.claim({ lease: 10 })), ['c']);
  assert.deepEqual(window.take(), []);
  assert.equal(window.settle([claims[0]]), 1);
  assert.equal(window.settle([claims[0]]), 0);
  assert.equal(window.requeue([{ key: 'b', id: claims[1].id }], { visibleAfter: clock.now + 100 }), 1);
  clock.now += 10;
  assert.deepEqual(keys(window.claim({ lease: 10 })), ['c'], 'its claim has lapsed');
});

test('publishing a key takes it out', () => {
  const { sync } = manual();
  sync.window.stage([{ key: 'a', visibleAfter: 0 }, { key: 'b', visibleAfter: 0 }]);
  const [claim] = sync.window.claim({ lease: 10, limit: 1 });
  for (let again = 0; again < 3; again++) sync.entries.putIfAbsent('a', bytes('v'));
  assert.equal(sync.window.settle([claim]), 0);
  sync.entries.put('b', bytes('v'));
  assert.deepEqual(keys(sync.window.take()), ['b'], 'replacing does not publish');
});

/** A key with an entry, claimed. */
function claimed(sync, ...names) {
  for (const name of names) sync.entries.put(name, bytes('value'));
  sync.window.stage(names.map((key) => ({ key, visibleAfter: 0 })));
  return sync.window.claim({ lease: 10 });
}

test('a marked key takes no write until its deletion is finished', async () => {
  const { store, sync } = manual();
  const claims = claimed(sync, 'a', 'b');
  assert.deepEqual(await store.window.finish(claims), [{ outcome: 'unmarked' }, { outcome: 'unmarked' }]);
  assert.deepEqual(await store.window.mark([claims[0]]), [{ outcome: 'marked' }]);
  assert.deepEqual(await store.window.mark(claims), [{ outcome: 'marked' }, { outcome: 'marked' }]);
  for (const write of [
    () => store.entries.putIfAbsent('a', bytes('new')),
    () => store.entries.put('a', bytes('new')),
    () => store.atomic([{ op: 'put', key: 'a', value: bytes('new') }]),
  ]) {
    assert.equal((await rejected('CONFLICT', write())).retryable, true);
  }
  assert.equal(text(sync.entries.get('a')), 'value');
  assert.equal(sync.window.unstage(['a']), 0);
  assert.equal(sync.window.settle(claims), 0);
  assert.deepEqual(await store.window.finish(claims), [{ outcome: 'deleted', bytes: 5 }, { outcome: 'deleted', bytes: 5 }]);
  assert.deepEqual(await store.window.finish(claims), [{ outcome: 'voided' }, { outcome: 'voided' }]);
  assert.equal(sync.entries.putIfAbsent('a', bytes('new')).stored, true);
});

test('what a sweep that died had marked is claimed again and finished', () => {
  const { sync, clock } = manual();
  const [first] = claimed(sync, 'a');
  assert.deepEqual([first.reclaiming, first.requeues], [false, 0]);
  sync.window.mark([first]);
  clock.now += 10;
  assert.deepEqual(sync.window.take(), [], 'it is past taking');
  const [again] = sync.window.claim({ lease: 10 });
  assert.equal(again.reclaiming, true);
  assert.deepEqual(sync.window.finish([first]), [{ outcome: 'lapsed' }]);
  assert.deepEqual(sync.window.delete([again]), [{ outcome: 'marked' }], 'something outside belongs to it');
  assert.deepEqual(sync.window.finish([again]), [{ outcome: 'deleted', bytes: 5 }]);
});

test('deleting in one step, and judging before it', () => {
  const { sync, clock } = manual();
  const claims = claimed(sync, 'a', 'b', 'c');
  sync.entries.delete('b');
  const expected = [{ outcome: 'deleted', bytes: 5 }, { outcome: 'absent' }, { outcome: 'deleted', bytes: 5 }];
  const before = sync.snapshot();
  assert.deepEqual(sync.window.judge(['a', 'b', bytes('c')]), expected);
  assert.deepEqual(sync.snapshot(), before);
  sync.entries.putIfAbsent('c', bytes('again'));
  assert.deepEqual(sync.window.delete(claims.map(({ key, id }) => ({ key, id }))), [...expected.slice(0, 2), { outcome: 'voided' }]);
  assert.deepEqual(sync.entries.list().map((row) => text(row.key)), ['c']);
  const [late] = claimed(sync, 'd');
  clock.now += 10;
  assert.deepEqual(sync.window.delete([late]), [{ outcome: 'lapsed' }]);
});

test('one sweep at a time, and its epoch fences what it deletes', async () => {
  const { store, sync, clock } = manual();
  const claims = claimed(sync, 'a');
  const epoch = await store.window.beginSweep(5);
  assert.equal(await store.window.beginSweep(5), null);
  assert.equal(sync.window.extendSweep(epoch, 7), true);
  clock.now += 7;
  assert.equal(sync.window.extendSweep(epoch, 5), false);
  for (const verb of ['mark', 'finish', 'delete']) thrown('LEASE_LOST', () => sync.window[verb](claims, { epoch }), verb);
  const next = sync.window.beginSweep(5);
  assert.ok(next > epoch);
  assert.equal(sync.window.endSweep(epoch), false);
  assert.deepEqual(sync.window.delete(claims, { epoch: next }), [{ outcome: 'deleted', bytes: 5 }]);
  assert.equal(sync.window.endSweep(next), true);
  assert.equal(sync.window.endSweep(next), false);
});

test('the window can be looked at', async () => {
  const { store, sync, clock } = manual();
  assert.deepEqual(await store.window.stats(), { rows: 0, due: 0, claimed: 0, reclaiming: 0, requeued: 0, oldest: null });
  sync.window.stage(['d', 'b', 'c', 'a'].map((key) => ({ key, visibleAfter: key === 'd' ? 1 : clock.now + 2.000_001 })));
  const [claim] = sync.window.claim({ lease: 10 });
  const waiting = { claimedUntil: null, reclaiming: false, requeues: 0 };
  assert.deepEqual(await store.window.info('d'), { ...waiting, key: bytes('d'), visibleAfter: 1, claimedUntil: clock.now + 10 });
  assert.equal(await store.window.info('x'), null);
  sync.window.mark([claim]);
  assert.deepEqual(sync.window.stats(), { rows: 4, due: 1, claimed: 1, reclaiming: 1, requeued: 0, oldest: 1 });
  sync.window.requeue([claim], { visibleAfter: 3 });
  assert.deepEqual(sync.window.info('d'), { key: bytes('d'), visibleAfter: 3, claimedUntil: null, reclaiming: true, requeues: 1 });
  assert.deepEqual(sync.window.stats({ now: Infinity }), { rows: 4, due: 4, claimed: 0, reclaiming: 1, requeued: 1, oldest: 3 });
  assert.deepEqual(keys(sync.window.list()), ['d', 'a', 'b', 'c']);
  const seen = [];
  for (let after; seen.length < 9; [after] = seen.slice(-1)) {
    const [row] = await store.window.list({ limit: 1, ...(after && { after }) });
    if (row === undefined) break;
    seen.push(row);
  }
  assert.deepEqual(keys(seen), ['d', 'a', 'b', 'c']);
  assert.deepEqual(keys(sync.window.list({ after: { key: 'aa', visibleAfter: seen[1].visibleAfter } })), ['b', 'c'], 'a row that is gone');
});

test('a page goes on after its row where a number of milliseconds cannot hold its instant', () => {
  // In this century such a number is good to 0.25 us; what the store adds to one is kept to the nanosecond.
  const { sync, clock } = manual();
  clock.now = 1_790_000_000_000.3;
  sync.window.stage([{ key: 'a', visibleAfter: clock.now }, { key: 'b', visibleAfter: clock.now + 0.001 }]);
  const first = sync.window.list({ limit: 1 });
  assert.deepEqual(keys(sync.window.list({ after: first[0], limit: 1 })), ['b']);
});
