import assert from 'node:assert/strict';
import test from 'node:test';
import { bytes, manual, text } from './support.mjs';

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
