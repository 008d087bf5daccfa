import assert from 'node:assert/strict';
import test from 'node:test';
import { bytes, manual, rejected, text, thrown } from './support.mjs';

test('a transaction reads its own writes, and nobody else does before the commit', () => {
  const { sync } = manual();
  sync.entries.put('in', bytes('job'));
  const answer = sync.tx((tx) => {
    const job = tx.getEntry('in');
    assert.equal(job.version, 1);
    assert.deepEqual(tx.putIfAbsent('out', job.value), { staged: true });
    assert.deepEqual(tx.putIfAbsent('out', bytes('x')), { staged: false, version: null });
    assert.equal(tx.delete('in'), true);
    assert.equal(tx.delete('in'), false);
    assert.equal(tx.has('in'), false);
    assert.equal(text(tx.get('out')), 'job');
    assert.equal(tx.getEntry('out').version, null);
    assert.equal(sync.entries.has('out'), false);
    assert.equal(sync.entries.has('in'), true);
    return 42;
  });
  assert.equal(answer, 42);
  assert.equal(text(sync.entries.get('out')), 'job');
  assert.equal(sync.entries.has('in'), false);
});

test('what was read must still hold at the commit', () => {
  const { sync } = manual();
  sync.entries.put('k', bytes('a'));
  const error = thrown('CONFLICT', () => sync.tx((tx) => {
    tx.get('k');
    sync.entries.put('k', bytes('b'));
    tx.put('other', bytes('x'));
  }));
  assert.equal(error.retryable, true);
  assert.equal(sync.entries.has('other'), false);
  thrown('CONFLICT', () => sync.tx((tx) => {
    assert.equal(tx.has('absent'), false);
    sync.entries.put('absent', bytes('now'));
  }));
});

test('what a transaction throws is thrown, and nothing is committed', () => {
  const { sync } = manual();
  const mine = new Error('mine');
  let kept;
  assert.throws(() => sync.tx((tx) => {
    kept = tx;
    tx.put('k', bytes('v'));
    throw mine;
  }), (error) => error === mine);
  assert.equal(sync.entries.has('k'), false);
  for (const use of [(tx) => tx.get('k'), (tx) => tx.put('k', bytes('v')), (tx) => tx.delete('k'), (tx) => tx.unstage('k'), (tx) => tx.stage('k', 1), (tx) => tx.guard({ name: 'a', token: 1 })]) {
    assert.match(thrown('INVALID_ARGUMENT', () => use(kept)).message, /has ended/);
  }
});

test('an async function is refused and rolled back', async () => {
  const { sync } = manual();
  thrown('INVALID_ARGUMENT', () => sync.tx(async (tx) => {
    tx.put('k', bytes('v'));
    await null;
    tx.put('l', bytes('v'));
  }));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(sync.entries.list(), []);
});

test('transactions nest as two of their own', () => {
  const { sync } = manual();
  sync.tx((outer) => {
    outer.put('a', bytes('1'));
    sync.tx((inner) => {
      assert.equal(inner.has('a'), false);
      inner.put('b', bytes('2'));
    });
    assert.equal(sync.entries.has('b'), true);
  });
  assert.deepEqual(sync.entries.list().map((row) => text(row.key)), ['a', 'b']);
});

test('a guard and the window are part of the commit', () => {
  const { sync, clock } = manual();
  const lease = sync.tryLock('shard', { ttl: 5 });
  sync.tx((tx) => {
    tx.guard(lease);
    tx.stage('old', 1);
    tx.put('k', bytes('v'), { ttl: 7 });
  });
  assert.deepEqual(sync.window.take().map((row) => text(row.key)), ['old']);
  assert.equal(sync.entries.getEntry('k').expiresAt, clock.now + 7);
  clock.now += 5;
  thrown('LEASE_LOST', () => sync.tx((tx) => {
    tx.guard(lease);
    tx.put('late', bytes('v'));
  }));
  assert.equal(sync.entries.has('late'), false);
});

test('closing inside a transaction fails its commit', () => {
  const { sync } = manual();
  thrown('CLOSED', () => sync.tx((tx) => {
    tx.put('k', bytes('v'));
    sync.close();
  }));
});

test('atomic applies all of it or nothing', async () => {
  const { store, sync } = manual();
  const lease = sync.tryLock('shard', { ttl: 5 });
  const { versions } = await store.atomic([
    { op: 'guard', name: 'shard', token: lease.token },
    { op: 'check', key: 'gone', version: null },
    { op: 'put', key: 'b', value: bytes('1'), ttl: 5 },
    { op: 'putIfAbsent', key: 'a', value: bytes('2') },
    { op: 'delete', key: 'c' },
    { op: 'stage', key: 'd', visibleAfter: 5, restage: 'keep' },
    { op: 'unstage', key: 'e' },
  ]);
  assert.deepEqual(versions.map((row) => [text(row.key), row.version]), [['a', 2], ['b', 3]]);
  const before = sync.snapshot();
  const fails = async (code, ops) => {
    await rejected(code, store.atomic(ops));
    assert.deepEqual(sync.snapshot(), before);
  };
  const put = { op: 'put', key: 'x', value: bytes('x') };
  await fails('CONFLICT', [put, { op: 'check', key: 'a', version: 99 }]);
  await fails('CONFLICT', [put, { op: 'check', key: 'a', version: null }]);
  await fails('CONFLICT', [put, { op: 'putIfAbsent', key: 'a', value: bytes('x') }]);
  await fails('CONFLICT', [put, { op: 'put', key: 'a', value: bytes('x'), ifVersion: 1 }]);
  await fails('LEASE_LOST', [put, { op: 'guard', name: 'shard', token: 99 }, { op: 'check', key: 'a', version: 99 }]);
  await fails('INVALID_ARGUMENT', [put, { op: 'put', key: 'x', value: bytes('y') }]);
  await fails('INVALID_ARGUMENT', [put, { op: 'put', key: 'y', value: 'text' }]);
  await fails('INVALID_ARGUMENT', [put, { op: 'put', key: 'y', value: bytes('y'), guard: lease }]);
  await fails('INVALID_ARGUMENT', [put, { op: 'check', key: 'y' }]);
  await fails('INVALID_ARGUMENT', [put, { op: 'frobnicate', key: 'y' }]);
  await fails('INVALID_ARGUMENT', [put, { op: '__proto__', key: 'y' }]);
  await fails('INVALID_ARGUMENT', [put, null]);
  await fails('INVALID_ARGUMENT', 'text');
  await fails('INVALID_ARGUMENT', null);
  await fails('INVALID_DURATION', [put, { op: 'put', key: 'y', value: bytes('y'), ttl: 0 }]);
  await fails('RESERVED_NAME', [put, { op: 'guard', name: '__alkstore_x', token: 1 }]);
  assert.deepEqual(await store.atomic([]), { versions: [] });
});

test('the operations are read once, before any of them counts', () => {
  const { sync } = manual();
  const value = bytes('mine');
  let reads = 0;
  const sly = {
    op: 'put',
    get key() {
      reads += 1;
      sync.entries.put('meanwhile', bytes('x'));
      sync.atomic([{ op: 'put', key: 'nested', value }]);
      return 'k';
    },
    value,
  };
  sync.atomic([{ op: 'put', key: 'first', value }, sly]);
  assert.equal(reads, 1);
  assert.deepEqual(sync.entries.list().map((row) => text(row.key)), ['first', 'k', 'meanwhile', 'nested']);
});
