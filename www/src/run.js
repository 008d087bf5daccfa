// What the controls run. The page shows these very functions beside the controls, so they are written to be read.
import { open } from 'alkstore';

const encode = (text) => new TextEncoder().encode(text);

export async function openStore(clock) {
  return open({ clock: () => clock.now });
}

export async function acquire(store, name, owner) {
  const options = { ttl: 6_000, owner };
  return store.tryLock(name, options);
  // null: somebody else holds it
}

export async function keep(lease) {
  return lease.renew();
  // false: it is no longer ours
}

export async function finish(store, lease, text) {
  const key = `${lease.name}/last`;
  const bytes = encode(text);
  await store.entries.put(key, bytes, { guard: lease });
  await lease.release();
}

export async function writeFenced(store, lease, text) {
  const key = 'report';
  const bytes = encode(text);
  await store.entries.put(key, bytes, { guard: lease });
  // LEASE_LOST once the lease has lapsed
}

export async function writeBlindly(store, text) {
  const key = 'report';
  const bytes = encode(text);
  await store.entries.put(key, bytes);
  // nothing stops it
}

export async function remember(store, key, text, ttl) {
  const bytes = encode(text);
  const { stored } =
    await store.entries.putIfAbsent(key, bytes, { ttl });
  return stored; // false: the first writer has won
}

export async function extend(store, key, ttl) {
  return store.entries.touch(key, ttl);
}

export async function forget(store, key) {
  return store.entries.delete(key);
}

export async function stage(store, key, wait) {
  const visibleAfter = (await store.now()) + wait;
  await store.window.stage([{ key, visibleAfter }]);
}

export async function takeDue(store) {
  const due = await store.window.take();
  for (const { key } of due) {
    await store.entries.delete(key);
  }
  return due;
}

export async function publishAgain(store, key, text) {
  await store.entries.putIfAbsent(key, encode(text));
  // stored or not: the key has left the window
}

export async function save(store) {
  return new Blob([await store.snapshot()]);
}

export async function restore(store, file) {
  await store.restore(await file.arrayBuffer());
}
