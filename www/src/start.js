import { open } from 'alkstore';

const store = await open();

// null: somebody else holds it
const lease = await store.tryLock('report', { ttl: 30_000 });
if (lease) {
  // LEASE_LOST: the work took longer than the lease
  await store.entries.put('report/last', bytes, { guard: lease });
  await lease.release();
}
