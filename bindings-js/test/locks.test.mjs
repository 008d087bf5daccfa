import assert from 'node:assert/strict';
import test from 'node:test';
import { open, openSync } from 'alkstore';
import { manual, rejected, thrown } from './support.mjs';

test('a lease is taken, lost by others, renewed, released', async () => {
  const clock = { now: 5000 };
  const store = await open({ clock: () => clock.now });
  const lease = await store.tryLock('report', { ttl: 1000, owner: 'me' });
  assert.deepEqual([lease.name, lease.owner, lease.expiresAt], ['report', 'me', 6000]);
  assert.equal(await store.tryLock('report', { ttl: 1000, owner: 'you' }), null);
  clock.now = 5999;
  assert.equal(await lease.renew(), true, 'by default for as long as before');
  assert.equal(lease.expiresAt, 6999);
  assert.equal(await lease.renew(1), true, 'shorter, too');
  assert.equal(lease.expiresAt, 6000);
  clock.now = 6000;
  assert.equal(await lease.renew(), false, 'a lapsed lease is not resurrected');
  assert.equal(await lease.release(), true, 'but its row is there');
  assert.equal(await lease.release(), false);
});

test('without an owner two calls contend, and the owner is spelled when asked for', () => {
  const { sync, clock } = manual();
  const lease = sync.tryLock('a', { ttl: 10 });
  assert.equal(sync.tryLock('a', { ttl: 10 }), null);
  assert.match(lease.owner, /^~[0-9a-f]{16}-1$/);
  assert.equal(sync.lockInfo('a').owner, lease.owner);
  clock.now += 10;
  const next = sync.tryLock('a', { ttl: 10 });
  assert.notEqual(next.owner, lease.owner);
  assert.equal(lease.release(), false, 'a late release spares the newer grant');
  assert.equal(sync.lockInfo('a').token, next.token);
});

test('the same owner gets its grant again, nothing refreshed', () => {
  const { sync, clock } = manual();
  const first = sync.tryLock('a', { ttl: 10, owner: 'o' });
  clock.now += 5;
  const again = sync.tryLock('a', { ttl: 10, owner: 'o' });
  assert.deepEqual([again.token, again.expiresAt], [first.token, first.expiresAt]);
  assert.equal(again.release(), true);
  assert.equal(first.release(), false);
});

test('a lease is rebuilt from its parts, also those of a lease without an owner', async () => {
  const { store, sync, clock } = manual();
  const lease = sync.tryLock('a', { ttl: 10 });
  const parts = JSON.parse(JSON.stringify(lease));
  assert.deepEqual(parts, { name: 'a', owner: lease.owner, token: lease.token });
  const rebuilt = store.lease(parts);
  assert.equal(rebuilt.expiresAt, undefined, 'nobody has told it yet');
  assert.equal((await rejected('INVALID_DURATION', rebuilt.renew())).cause.message, 'a time to live must be a number');
  assert.equal(await rebuilt.renew(50), true);
  assert.equal(rebuilt.expiresAt, clock.now + 50);
  assert.equal(await store.lease({ ...parts, owner: 'x' }).release(), false);
  assert.equal(await store.lease({ ...parts, token: 99 }).release(), false);
  assert.equal(await rebuilt.release(), true);
  assert.equal(sync.lockInfo('a'), null);
});

test('queryLocks and lockInfo show the rows, forceRelease frees exactly one grant', async () => {
  const { store, sync, clock } = manual();
  for (const name of ['b/2', 'a', 'b/1', 'c']) sync.tryLock(name, { ttl: name === 'c' ? 1 : 10, owner: 'o' });
  clock.now += 1;
  const { held, pending } = await store.queryLocks();
  assert.deepEqual(held.map((row) => row.name), ['a', 'b/1', 'b/2', 'c']);
  assert.deepEqual(held[3], { name: 'c', owner: 'o', token: 4, expiresAt: clock.now, lapsed: true });
  assert.deepEqual(pending, []);
  assert.deepEqual(sync.queryLocks('b/').held.map((row) => row.name), ['b/1', 'b/2']);
  assert.deepEqual(sync.queryLocks('', { after: 'a', limit: 1 }).held.map((row) => row.name), ['b/1']);
  assert.equal(await store.forceRelease('a', { token: 1 }), false);
  assert.equal(await store.forceRelease('a', { token: 2 }), true);
  assert.equal(await store.lockInfo('a'), null);
  assert.equal(await store.purgeLapsed({ limit: 0 }), 0);
  assert.equal(await store.purgeLapsed(), 1);
  assert.equal(sync.stats().locks, 2);
});

test('two stores share nothing', () => {
  const [one, two] = [openSync().sync, openSync().sync];
  const lease = one.tryLock('a', { ttl: 1000 });
  assert.ok(two.tryLock('a', { ttl: 1000 }));
  assert.throws(() => two.lease(lease), { code: 'INVALID_ARGUMENT', message: /another store/ });
  assert.throws(() => two.entries.put('k', new Uint8Array(1), { guard: lease }), { code: 'INVALID_ARGUMENT', message: /another store/ });
  assert.throws(() => two.tx((tx) => tx.guard(lease)), { code: 'INVALID_ARGUMENT', message: /another store/ });
  assert.throws(() => two.atomic([{ op: 'guard', name: 'a', token: 1, lease }]), { code: 'INVALID_ARGUMENT' });
  one.close();
  assert.equal(two.queryLocks().held.length, 1);
});

test('names are remembered without being mixed up', () => {
  const { sync } = manual();
  // More than are remembered, three times over, so that places are learnt, forgotten and learnt anew.
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < 10_000; i++) {
      const name = `name ${i}`;
      const lease = sync.tryLock(name, { ttl: 1000 });
      assert.equal(sync.lockInfo(name).token, lease.token);
      assert.equal(lease.release(), true);
      assert.equal(sync.lockInfo(name), null);
    }
  }
  const odd = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'é', 'e\u0301', 'a\u202eb', 'a ', 'A', 'a\n', "'; drop--", '../x', '%_', '\u{1f600}'];
  for (let round = 0; round < 3; round++) {
    const leases = odd.map((name) => sync.tryLock(name, { ttl: 1000 }));
    assert.equal(sync.stats().locks, odd.length);
    leases.forEach((lease, i) => assert.equal(sync.lockInfo(odd[i]).token, lease.token));
    for (const lease of leases) assert.equal(lease.release(), true);
  }
});

test('options that this version lacks are refused by name', async () => {
  const { store, sync } = manual();
  assert.match(thrown('INVALID_ARGUMENT', () => sync.tryLock('a', { ttl: 1, renew: 'auto' })).message, /renew must be 'manual'/);
  assert.match(thrown('INVALID_ARGUMENT', () => sync.tryLock('a', { ttl: 1, timeout: 5 })).message, /'timeout'/);
  assert.match((await rejected('INVALID_ARGUMENT', store.tryLock('a', { ttl: 1, signal: undefined }))).message, /'signal'/);
  assert.ok(sync.tryLock('a', { ttl: 1, renew: 'manual' }));
  assert.match(thrown('INVALID_ARGUMENT', () => openSync({ maxlocks: 1 })).message, /'maxlocks'/);
  for (const verb of ['lock', 'withLock', 'watch']) assert.equal(store[verb], undefined);
});
