// `lease.signal`. Time is moved by hand, timers and the time of day together.
import assert from 'node:assert/strict';
import test, { mock } from 'node:test';
import { openSync } from 'alkstore';

const DAY = 86_400_000;

function timed(name, fn) {
  test(name, async () => {
    mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 1_000_000 });
    try {
      const store = openSync();
      await fn({ store, sync: store.sync, tick: (ms) => mock.timers.tick(ms) });
    } finally {
      mock.timers.reset();
    }
  });
}

const lost = (signal) => {
  assert.equal(signal.aborted, true);
  assert.equal(signal.reason.name, 'AlkError');
  assert.equal(signal.reason.code, 'LEASE_LOST');
};

timed('it aborts at the deadline', async ({ store, tick }) => {
  const lease = await store.tryLock('a', { ttl: 1000 });
  let heard = 0;
  lease.signal.addEventListener('abort', () => (heard += 1));
  assert.equal(lease.signal, lease.signal);
  tick(999);
  assert.equal(lease.signal.aborted, false);
  tick(1);
  lost(lease.signal);
  assert.equal(heard, 1);
  assert.match(lease.signal.reason.message, /the lease 1 on "a"/);
});

timed('renewing moves it, later or earlier', async ({ store, tick }) => {
  const lease = await store.tryLock('a', { ttl: 1000 });
  const { signal } = lease;
  tick(900);
  await lease.renew();
  tick(999);
  assert.equal(signal.aborted, false);
  await lease.renew(50);
  tick(49);
  assert.equal(signal.aborted, false);
  tick(1);
  lost(signal);
  tick(10 * DAY);
});

timed('another handle of the same grant moves it too', async ({ store, sync, tick }) => {
  const lease = await store.tryLock('a', { ttl: 1000 });
  const { signal } = lease;
  assert.equal(sync.lease(lease.toJSON()).renew(5000), true);
  tick(4999);
  assert.equal(signal.aborted, false);
  tick(1);
  lost(signal);
});

timed('a renewal that finds the lease lost aborts it', async ({ store, sync, tick }) => {
  const lease = await store.tryLock('a', { ttl: 1000 });
  const { signal } = lease;
  const other = sync.lease(lease.toJSON());
  other.release();
  assert.equal(signal.aborted, true, 'whoever released it');
  const again = await store.tryLock('a', { ttl: 1000 });
  const watched = again.signal;
  sync.forceRelease('a', { token: again.token });
  lost(watched);
  assert.equal(await again.renew(), false);
  const third = await store.tryLock('a', { ttl: 1000 });
  const last = third.signal;
  sync.restore(openSync().sync.snapshot());
  lost(last);
  tick(DAY);
});

timed('releasing it ends the watch without an abort', async ({ store, tick }) => {
  const lease = await store.tryLock('a', { ttl: 1000 });
  const { signal } = lease;
  await lease.release();
  await lease.release();
  tick(DAY);
  assert.equal(signal.aborted, false);
});

timed('a deadline beyond 2^31 - 1 ms does not fire early', async ({ store, tick }) => {
  const delays = [];
  const { setTimeout: mocked } = globalThis;
  globalThis.setTimeout = (fn, delay) => (delays.push(delay), mocked(fn, delay));
  try {
    const lease = await store.tryLock('a', { ttl: 60 * DAY });
    const { signal } = lease;
    const forever = (await store.tryLock('b', { ttl: 3_155_760_000_000 })).signal;
    tick(1);
    assert.equal(signal.aborted, false);
    for (let day = 0; day < 59; day++) tick(DAY);
    assert.equal(signal.aborted, false);
    tick(DAY);
    lost(signal);
    assert.equal(forever.aborted, false);
    assert.ok(delays.length >= 4);
    assert.ok(Math.max(...delays) <= 2 ** 31 - 1, `${delays}`);
  } finally {
    globalThis.setTimeout = mocked;
  }
});

timed('nothing is armed before it is read', async ({ store }) => {
  const { setTimeout: mocked } = globalThis;
  let armed = 0;
  globalThis.setTimeout = (...args) => (armed++, mocked(...args));
  try {
    const lease = await store.tryLock('a', { ttl: 1000 });
    await lease.renew();
    assert.equal(armed, 0);
    void lease.signal;
    assert.equal(armed, 1);
  } finally {
    globalThis.setTimeout = mocked;
  }
});

timed('a lease that is lost when it is first asked for is aborted then', async ({ store, sync, tick }) => {
  const lease = await store.tryLock('a', { ttl: 1000 });
  tick(1000);
  lost(lease.signal);
  sync.tryLock('a', { ttl: 1000 });
  lost(sync.lease({ name: 'a', owner: 'nobody', token: 1 }).signal);
});

timed('a rebuilt lease has one as well', async ({ store, sync, tick }) => {
  const { owner, token } = sync.tryLock('a', { ttl: 1000, owner: 'o' });
  const { signal } = store.lease({ name: 'a', owner, token });
  tick(999);
  assert.equal(signal.aborted, false);
  tick(1);
  lost(signal);
});

timed('closing the store aborts it', async ({ store, tick }) => {
  const { signal } = await store.tryLock('a', { ttl: 1000 });
  await store.close();
  lost(signal);
  assert.equal(signal.reason.cause.code, 'CLOSED');
  tick(DAY);
});

test('a clock that fails aborts it, and no timer throws', async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    let now = 5;
    const { sync } = openSync({
      clock: () => {
        if (now === undefined) throw new Error('broken');
        return now;
      },
    });
    const { signal } = sync.tryLock('a', { ttl: 10 });
    mock.timers.tick(10);
    assert.equal(signal.aborted, false, 'by the store clock no time has passed');
    now = undefined;
    mock.timers.tick(10);
    lost(signal);
  } finally {
    mock.timers.reset();
  }
});

test('its timer keeps no process alive', async () => {
  const { spawnSync } = await import('node:child_process');
  const script = `import { openSync } from 'alkstore'; openSync().sync.tryLock('a', { ttl: 1e9 }).signal;`;
  const { status, signal, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], { cwd: new URL('..', import.meta.url), timeout: 30_000, encoding: 'utf8' });
  assert.deepEqual([status, signal, stderr], [0, null, '']);
});

timed('a release looks again at the leases of its name alone', ({ store, sync }) => {
  const many = Array.from({ length: 200 }, (_, i) => sync.tryLock(`n${i}`, { ttl: 1000 }));
  const signals = many.map((lease) => lease.signal);
  const other = store.lease(many[0].toJSON());
  let looked = 0;
  const { now } = Date;
  Date.now = () => ((looked += 1), now());
  try {
    for (const lease of many.slice(1)) lease.release();
  } finally {
    Date.now = now;
  }
  assert.ok(looked < 200, `the clock was read ${looked} times`);
  const { signal } = other;
  assert.equal(many[0].release(), true);
  lost(signal);
  assert.equal(signals.some((each) => each.aborted), false);
});
