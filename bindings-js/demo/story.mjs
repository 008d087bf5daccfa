// What happens: workers file a folder under leases, one of them stalls, references go and a sweep follows, a snapshot is
// compared.
import { read, sha256 } from './folder.mjs';
import { bytes, count, short } from './screen.mjs';

export const WORKERS = ['ada', 'ben', 'cleo', 'dora'];
export const TTL = 3_000;
export const WINDOW = 3_600_000;
const CLAIM = 60_000;
const PIN = 600_000;
const MAX_SHARDS = 12;
const POLL = 400;

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const text = (bytes) => (bytes === null ? null : decoder.decode(bytes));

const blobKey = (hash) => `sha256/${hash}`;
const countKey = (hash) => `refs/${hash}`;
const pinName = (key) => `pin/${text(key)}`;
// A key has at most 1,024 bytes; some paths have more.
const fileKey = (path) => (Buffer.byteLength(path) <= 1_000 ? `file/${path}` : `long/${sha256(path)}`);
const doneKey = (shard) => `shard/${shard.number}/done`;

/** Deals the files to shards like cards, so that each shard has some of everything. */
export function deal(files) {
  const shards = Array.from({ length: Math.min(MAX_SHARDS, files.length) }, (_, index) => ({ number: index + 1, files: [] }));
  files.forEach((file, index) => shards[index % shards.length].files.push(file));
  return shards;
}

/**
 * Files every shard, each under the lease `shard/N`. The worker that first takes shard 2 stalls in the middle of it.
 * Tells of events by `tell(who, what, style)`; gives counts, the bars of the timeline, and what the stalled worker met.
 */
export async function fileAll({ store, clock, shards, AlkError, tell, progress }) {
  const total = shards.reduce((sum, { files }) => sum + files.length, 0);
  const counts = {
    files: 0, bytes: 0, distinct: 0, distinctBytes: 0, duplicates: 0, duplicateBytes: 0,
    granted: 0, losing: 0, renewed: 0, released: 0, lapsed: 0, refused: 0, shards: 0,
  };
  const bars = [];
  const skipped = [];
  const stalled = {};
  const unlucky = shards[Math.min(1, shards.length - 1)];

  async function work(who) {
    while (true) {
      let open = 0;
      for (const shard of shards) {
        if (await store.entries.has(doneKey(shard))) continue;
        open += 1;
        const lease = await store.tryLock(`shard/${shard.number}`, { ttl: TTL, owner: who });
        if (lease === null) {
          counts.losing += 1;
          continue;
        }
        counts.granted += 1;
        await shardUnder(lease, shard, who);
      }
      if (open === 0) return;
      await clock.sleep(POLL);
    }
  }

  async function shardUnder(lease, shard, who) {
    const bar = { who, shard: shard.number, from: clock.elapsed };
    bars.push(bar);
    const after = shard === unlucky && stalled.who !== undefined;
    tell(who, `takes shard ${shard.number} with token ${lease.token}${after ? `: the lease of ${stalled.who} has lapsed` : ''}`, after ? 'yellow' : undefined);
    const middle = Math.floor(shard.files.length / 2);
    let filed = 0;
    let seen = 0;
    for (const [index, file] of shard.files.entries()) {
      // A successor goes on where the one before stopped.
      if (await store.entries.has(fileKey(file.path))) continue;
      const content = await read(file);
      if (content.why) {
        if (!skipped.some(({ path }) => path === file.path)) skipped.push({ path: file.path, why: content.why });
        continue;
      }
      if (shard === unlucky && index >= middle && stalled.who === undefined) {
        await stall({ lease, shard, who, bar, file, content });
        return;
      }
      const duplicate = await put({ lease, who, file, content });
      filed += 1;
      seen += duplicate;
      progress(counts.files, total);
      await clock.sleep(Math.min(1_000, (4_000 + 500 * (shard.number % 3)) / shard.files.length));
      if (lease.expiresAt - clock.now < TTL / 2 && (await lease.renew())) counts.renewed += 1;
    }
    await store.entries.put(doneKey(shard), encoder.encode(who), { guard: lease });
    counts.shards += 1;
    counts.released += await lease.release();
    bar.to = clock.elapsed;
    tell(who, `has done shard ${shard.number}: ${filed} filed${seen ? `, ${seen} of them seen before` : ''}`, 'green');
    if (shard === unlucky) stalled.successor = { who, token: lease.token };
  }

  /** One file: its content under its hash, where the first writer wins, then its name, both fenced by the lease. */
  async function put({ lease, who, file: { path }, content: { bytes, hash } }) {
    const winner = await store.entries.putIfAbsent(blobKey(hash), bytes, { guard: lease });
    refer(store, { path, hash, who, guard: lease });
    counts.files += 1;
    counts.bytes += bytes.length;
    counts[winner.stored ? 'distinct' : 'duplicates'] += 1;
    counts[winner.stored ? 'distinctBytes' : 'duplicateBytes'] += bytes.length;
    return !winner.stored;
  }

  async function stall({ lease, shard, who, bar, file, content }) {
    Object.assign(stalled, { who, shard: shard.number, token: lease.token, path: file.path });
    tell(who, `stalls in the middle of ${short(file.path)}, with the lease good for ${((lease.expiresAt - clock.now) / 1000).toFixed(1)} s more`, 'yellow');
    bar.stall = clock.elapsed;
    bar.lapse = lease.expiresAt - clock.start;
    // It sleeps past its successor's work, as a paused machine would: the write that it had begun comes last.
    while (stalled.successor === undefined) await clock.sleep(POLL);
    await clock.sleep(POLL);
    const before = await store.entries.getEntry(fileKey(file.path));
    let refused;
    try {
      await put({ lease, who, file, content });
    } catch (error) {
      if (!(error instanceof AlkError) || error.code !== 'LEASE_LOST') throw error;
      refused = error.code;
    }
    const now = await store.entries.getEntry(fileKey(file.path));
    stalled.refused = refused;
    stalled.stands = now !== null && now.version === before?.version && referrer(now) === stalled.successor.who;
    stalled.renewed = await lease.renew();
    stalled.released = await lease.release();
    counts.lapsed += 1;
    counts.refused += refused === 'LEASE_LOST';
    bar.to = clock.elapsed;
    tell(who, `wakes and writes with its old token ${lease.token}: ${refused ?? 'NOT REFUSED'}`, 'red');
    tell(who, `renew() says ${stalled.renewed}, release() says ${stalled.released}; the write of ${stalled.successor.who} stands`);
  }

  await clock.run(WORKERS.map((who) => () => work(who)));
  return { counts, bars, skipped, stalled };
}

/** One more name for a content: the name and the number of names change together or not at all. */
function refer(store, { path, hash, who, guard }) {
  store.sync.tx((tx) => {
    if (guard) tx.guard(guard);
    const names = Number(text(tx.get(countKey(hash))) ?? 0);
    tx.put(countKey(hash), encoder.encode(String(names + 1)));
    tx.put(fileKey(path), encoder.encode(`${hash} ${who}`));
  });
}

const hashOf = (entry) => text(entry.value).split(' ')[0];
const referrer = (entry) => text(entry.value).split(' ')[1];

/** Forgets a name. With the last name of a content, the content becomes a candidate. Says whether it was the last. */
export function drop(store, path, visibleAfter) {
  return store.sync.tx((tx) => {
    const hash = hashOf(tx.getEntry(fileKey(path)));
    const names = Number(text(tx.get(countKey(hash)))) - 1;
    tx.delete(fileKey(path));
    if (names > 0) tx.put(countKey(hash), encoder.encode(String(names)));
    else {
      tx.delete(countKey(hash));
      tx.stage(blobKey(hash), visibleAfter);
    }
    return names === 0;
  });
}

/** Drops every third name, lets the window run out, and sweeps; one content comes back in time, one is pinned. */
export async function collect({ store, clock, paths, files, tell, progress }) {
  const counts = {
    dropped: 0, shared: 0, staged: 0, early: 0, rescued: 0, claimed: 0, whileClaimed: 0, pinned: 0, spared: 0, foretold: false,
    taken: 0, freed: 0, waiting: 0,
  };
  const last = new Map();
  for (const path of paths.filter((_, index) => index % 3 === 0)) {
    const hash = hashOf(await store.entries.getEntry(fileKey(path)));
    counts.dropped += 1;
    if (drop(store, path, clock.now + WINDOW)) last.set(path, hash);
    else counts.shared += 1;
  }
  counts.staged = last.size;
  tell('', `${count(counts.dropped, 'name')} dropped; ${count(counts.staged, 'content')} without a name must wait for an hour`);

  // A content is live while it has a name, or while somebody holds a lease on it: that is a pin in memory.
  const liveness = (keys) => Promise.all(keys.map(async (key) => {
    const pin = await store.lockInfo(pinName(key));
    return (pin !== null && !pin.lapsed) || store.entries.has(countKey(text(key).slice('sha256/'.length)));
  }));
  counts.early = (await store.sweep({ liveness })).examined;
  tell('', `a sweep at once finds ${counts.early}: nothing is due yet`);

  clock.advance(WINDOW / 2);
  if (last.size > 1) {
    const [path, hash] = [...last][0];
    const content = await read(files.find((file) => file.path === path));
    if (content.hash === hash) {
      await store.entries.putIfAbsent(blobKey(hash), content.bytes);
      refer(store, { path, hash, who: 'again' });
      counts.rescued = 1;
      tell('', `${short(path)} comes back: putIfAbsent() takes its content out of the window`, 'green');
    }
  }

  clock.advance(WINDOW / 2);
  const claims = await store.window.claim({ lease: CLAIM });
  counts.claimed = claims.length;
  tell('', `the hour is over: somebody claims ${counts.claimed} and dies`, 'yellow');
  counts.whileClaimed = (await store.sweep({ liveness })).examined;
  tell('', `a sweep finds ${counts.whileClaimed} while the claims are live`);

  clock.advance(CLAIM);
  const pinned = claims.at(-1)?.key;
  if (pinned !== undefined) {
    await store.tryLock(pinName(pinned), { ttl: PIN, owner: 'ben' });
    counts.pinned = 1;
    tell('ben', `is about to refer to ${short(text(pinned), 20)} and pins it by a lease of ten minutes`);
  }
  const foretold = await store.sweep({ liveness, dryRun: true });
  tell('', `a dry run foretells: of ${foretold.examined.toLocaleString('en')} that are due ${foretold.deleted.toLocaleString('en')} would go (${bytes(foretold.bytesFreed)}), ${foretold.protectedByLiveness} is spared`);
  const swept = await store.sweep({ liveness, batch: 100, onProgress: ({ examined }) => progress(examined, foretold.examined) });
  counts.foretold = JSON.stringify({ ...swept, dryRun: true }) === JSON.stringify(foretold);
  counts.spared = pinned !== undefined && (await store.entries.has(pinned)) ? swept.protectedByLiveness : 0;
  tell('', `the sweep deletes ${swept.deleted.toLocaleString('en')} (${bytes(swept.bytesFreed)}) and spares ${swept.protectedByLiveness}${counts.foretold ? ', as foretold' : ': NOT AS FORETOLD'}`, 'green');

  clock.advance(PIN);
  // The mark pass: whatever still has no name is staged again.
  if (pinned !== undefined) await store.window.stage([{ key: pinned, visibleAfter: clock.now }]);
  const late = await store.sweep({ liveness });
  counts.taken = swept.deleted + late.deleted;
  counts.freed = swept.bytesFreed + late.bytesFreed;
  if (pinned !== undefined) tell('', `ben never came back: the pin has lapsed, the content is staged again, and a sweep deletes ${late.deleted}`, 'yellow');

  // Leave something in the window, for the snapshot to carry.
  for (const path of paths) {
    const entry = await store.entries.getEntry(fileKey(path));
    if (entry === null || text(await store.entries.get(countKey(hashOf(entry)))) !== '1') continue;
    drop(store, path, clock.now + WINDOW);
    counts.dropped += 1;
    counts.staged += 1;
    counts.waiting += 1;
    break;
  }
  return counts;
}

/** Copies the store through a snapshot and compares everything that can be seen of both. */
export async function copy({ store, clock, open, tell, progress }) {
  const { name, owner, token } = await store.tryLock('archive', { ttl: WINDOW, owner: WORKERS[0] });
  const snapshot = await store.snapshot();
  const second = await open({ clock: () => clock.now });
  await second.restore(snapshot);

  const [here, there] = [await seen(store), await seen(second)];
  let rehashed = 0;
  let contents = 0;
  const metas = await second.entries.list('sha256/');
  for (const { key } of metas) {
    const hash = text(key).slice('sha256/'.length);
    const bytes = await second.entries.get(key);
    rehashed += sha256(bytes) === hash;
    contents += bytes.length;
    progress(rehashed, metas.length);
  }
  const counts = {
    bytes: snapshot.length,
    entries: here.stats.entries,
    locks: here.stats.locks,
    window: here.stats.window,
    blobs: metas.length,
    contents,
    rehashed,
    equal: JSON.stringify(here.rows) === JSON.stringify(there.rows),
    contended: (await second.tryLock('archive', { ttl: TTL, owner: WORKERS[1] })) === null,
    renewed: await second.lease({ name, owner, token }).renew(WINDOW),
  };
  tell('', `${[count(counts.entries, 'entry', 'entries'), count(counts.locks, 'lock'), count(counts.window, 'candidate')].join(', ')} copied`);
  tell('', `ada's lease came along: in the copy renew() says ${counts.renewed}, and ben's tryLock() gives ${counts.contended ? 'null' : 'A SECOND LEASE'}`, 'green');
  await second.close();
  return counts;
}

async function seen(store) {
  const stats = await store.stats();
  const entries = (await store.entries.list()).map(({ key, ...rest }) => ({ key: text(key), ...rest }));
  const { held } = await store.queryLocks();
  return { stats, rows: { entries, held, window: stats.window } };
}
