// The jobs of the JavaScript table: alkstore against what one would use instead.
import { TTLCache } from '@isaacs/ttlcache';
import { memoryStore } from '@verrou/core/drivers/memory';
import { openSync } from 'alkstore';
import AsyncLock from 'async-lock';
import Keyv from 'keyv';
import { LRUCache } from 'lru-cache';
import NodeCache from 'node-cache';
import { inside } from './inside.js';
import { human, median } from './measure.js';

const TTL = 30_000;
const NAMES = 1000;
// So many others are held all the while: nobody meets an empty table, whose deletion is a case of its own for some.
const OTHERS = 100;
// Room for all of it, so that nobody ever evicts.
const MAX = 200_000;

const WITH_TTL = { ttl: TTL };
const AS_WORKER = { ttl: TTL, owner: 'worker-1' };

const list = (n, prefix = 'shard/') => Array.from({ length: n }, (_, at) => `${prefix}${String(at).padStart(8, '0')}`);
const others = list(OTHERS, 'other/');

// `env`: `handle` is the goal for locks by handle; `locks` a LockManager, where there is one; `heap` answers the bytes
// of the heap after a collection, where that can be had.
export async function run(table, env) {
  await locks(table, env);
  await promises(table, env);
  await entries(table);
  await growth(table, env);
}

const lru = (options) => new LRUCache({ max: MAX, ttl: TTL, ...options });
const ttlCache = () => new TTLCache({ max: MAX, ttl: TTL });
// Its clones, the default, are no use for bytes: a Uint8Array comes back broken.
const nodeCache = () => new NodeCache({ stdTTL: TTL / 1000, checkperiod: 0, useClones: false });

// A lock as one writes it over a cache with a ttl: a token in the entry, taken only where there is none, freed only by
// whoever has it.
function overCache(name, cache, remove = 'delete') {
  for (const other of others) cache.set(other, 0);
  let token = 0;
  return {
    name,
    pair(lock) {
      if (cache.has(lock)) return 0;
      const own = ++token;
      cache.set(lock, own);
      if (cache.get(lock) !== own) return 0;
      cache[remove](lock);
      return 1;
    },
    lose: (lock) => (cache.has(lock) ? 1 : 0),
  };
}

// The same by hand, for whoever needs no package.
function byHand() {
  const rows = new Map(others.map((name) => [name, { token: 0, deadline: Infinity }]));
  let token = 0;
  return {
    name: 'a Map by hand',
    pair(lock) {
      const now = Date.now();
      const row = rows.get(lock);
      if (row !== undefined && row.deadline > now) return 0;
      const own = ++token;
      rows.set(lock, { token: own, deadline: now + TTL });
      if (rows.get(lock)?.token !== own) return 0;
      rows.delete(lock);
      return 1;
    },
    lose: (lock) => (rows.get(lock).deadline > Date.now() ? 1 : 0),
  };
}

function alkstore() {
  const store = openSync().sync;
  for (const name of others) store.tryLock(name, { ttl: 1e9 });
  return {
    name: 'alkstore',
    pair: (name) => (store.tryLock(name, WITH_TTL).release() ? 1 : 0),
    lose: (name) => (store.tryLock(name, WITH_TTL) === null ? 1 : 0),
  };
}

const cachesOfLocks = () => [
  overCache('lru-cache', lru()),
  overCache('lru-cache, ttlResolution 0', lru({ ttlResolution: 0 })),
  overCache('@isaacs/ttlcache', ttlCache()),
  overCache('node-cache', nodeCache(), 'del'),
  byHand(),
];

// The loops are made anew for each contender, so that each has its call in the loop optimised for it alone.
function over(names, { name, pair }) {
  const loop = new Function('pair', 'names', `return (n) => {
    let done = 0;
    for (let at = 0; at < n; at++) done += pair(names[at % ${names.length}]);
    return done;
  };`);
  return { name, work: loop(pair, names) };
}

// Strings that nobody has seen: not even their hashes are known.
let fresh = 0;
function overFresh({ name, pair }) {
  let names = [];
  return {
    name,
    prepare(n) {
      names = Array.from({ length: n }, () => `job/${fresh++}`);
    },
    work(n) {
      let done = 0;
      for (let at = 0; at < n; at++) done += pair(names[at]);
      return done;
    },
  };
}

async function locks(table, env) {
  const names = list(NAMES);
  const handles = inside(names);
  await table.race(
    'acquire and release by handle (inside)',
    [over(handles.list, { name: 'alkstore', pair: handles.pair }), over(names, overCache('lru-cache', lru()))],
    { 'lru-cache': env.handle },
  );
  handles.close();

  const own = alkstore();
  await table.race(
    'acquire and release',
    [own, ...cachesOfLocks()].map((lock) => over(names, lock)),
    { 'lru-cache': 1.5 },
  );
  await table.race(
    'acquire and release, names never used again',
    [alkstore(), ...cachesOfLocks()].map(overFresh),
    { 'lru-cache': 0.8 },
  );
  await table.race(
    'losing tryLock',
    [own, ...cachesOfLocks()].map(({ name, lose }) => over(others, { name, pair: lose })),
  );

  const store = openSync().sync;
  await table.race('acquire and release as a named owner', [
    over(names, { name: 'alkstore', pair: (name) => (store.tryLock(name, AS_WORKER).release() ? 1 : 0) }),
    over(names, own),
  ].map((contender, at) => (at === 0 ? contender : { ...contender, name: 'alkstore, owner left out' })));
}

// Where each step is awaited, as in most programs.
async function promises(table, env) {
  const names = list(NAMES);
  const loop = (name, pair) => ({
    name,
    async work(n) {
      let done = 0;
      for (let at = 0; at < n; at++) if (await pair(names[at % NAMES])) done++;
      return done;
    },
  });
  const store = openSync();
  // No timers that would keep the process alive.
  const keyv = new Keyv({ ttl: TTL, useKeyPrefix: false });
  let token = 0;
  const asyncLock = new AsyncLock();
  const verrou = memoryStore().factory();
  const contenders = [
    loop('alkstore', async (name) => {
      const lease = await store.tryLock(name, WITH_TTL);
      return lease.release();
    }),
    loop('keyv', async (name) => {
      if ((await keyv.get(name)) !== undefined) return false;
      const own = ++token;
      await keyv.set(name, own);
      return (await keyv.get(name)) === own && keyv.delete(name);
    }),
    loop('async-lock', (name) => asyncLock.acquire(name, () => true)),
    loop('@verrou/core, memory driver', async (name) => {
      if (!(await verrou.save(name, 'worker-1', TTL))) return false;
      await verrou.delete(name, 'worker-1');
      return true;
    }),
  ];
  if (env.locks) {
    contenders.push(loop('navigator.locks', (name) => env.locks.request(name, { ifAvailable: true }, (lock) => lock !== null)));
  }
  await table.race('acquire and release, awaited', contenders);
}

async function entries(table) {
  const keys = list(NAMES, 'blob/');
  for (const size of [32, 100]) await values(table, keys, new Uint8Array(size).fill(7));

  const value = new Uint8Array(32).fill(7);
  const batched = openSync().sync;
  const cache = lru();
  const batches = [];
  for (let at = 0; at + 64 <= NAMES; at += 64) batches.push(keys.slice(at, at + 64));
  const each = (name, one) => ({
    name,
    pair(batch) {
      for (const key of batch) one(key);
      return 1;
    },
  });
  await table.race('64 puts at once', [
    over(batches, {
      name: 'alkstore',
      pair: (batch) => (batched.atomic(batch.map((key) => ({ op: 'put', key, value, ttl: TTL }))).versions.length === 64 ? 1 : 0),
    }),
    over(batches, each('alkstore, one by one', (key) => batched.entries.put(key, value, WITH_TTL))),
    over(batches, each('lru-cache', (key) => cache.set(key, value))),
  ]);
}

// V8 keeps up to 64 bytes of a Uint8Array in the object; what is longer is allocated outside its heap, which costs more
// than all the rest. alkstore copies values in and out, the others keep and give what they were given.
async function values(table, keys, value) {
  const { length } = value;
  const store = openSync().sync.entries;
  const [cache, copying, ttl, node] = [lru(), lru(), ttlCache(), nodeCache()];
  const set = [
    { name: 'alkstore', pair: (key) => (store.put(key, value, WITH_TTL).stored ? 1 : 0) },
    { name: 'lru-cache', pair: (key) => (cache.set(key, value), 1) },
    { name: 'lru-cache, copying the bytes', pair: (key) => (copying.set(key, new Uint8Array(value)), 1) },
    { name: '@isaacs/ttlcache', pair: (key) => (ttl.set(key, value), 1) },
    { name: 'node-cache', pair: (key) => (node.set(key, value) ? 1 : 0) },
  ];
  await table.race(`put with a ttl, ${length} bytes`, set.map((contender) => over(keys, contender)), { 'lru-cache': 1 });
  // Some turns may have been too short for all of them.
  for (const key of keys) for (const { pair } of set) pair(key);
  const get = [
    { name: 'alkstore', pair: (key) => (store.get(key).length === length ? 1 : 0) },
    { name: 'lru-cache', pair: (key) => (cache.get(key).length === length ? 1 : 0) },
    { name: 'lru-cache, copying the bytes', pair: (key) => (new Uint8Array(copying.get(key)).length === length ? 1 : 0) },
    { name: '@isaacs/ttlcache', pair: (key) => (ttl.get(key).length === length ? 1 : 0) },
    { name: 'node-cache', pair: (key) => (node.get(key).length === length ? 1 : 0) },
  ];
  await table.race(`get, ${length} bytes`, get.map((contender) => over(keys, contender)), { 'lru-cache': 0.5, 'node-cache': 1 });
  if (length > 32) return;
  const has = [
    { name: 'alkstore', pair: (key) => (store.has(key) ? 1 : 0) },
    { name: 'lru-cache', pair: (key) => (cache.has(key) ? 1 : 0) },
    { name: '@isaacs/ttlcache', pair: (key) => (ttl.has(key) ? 1 : 0) },
    { name: 'node-cache', pair: (key) => (node.has(key) ? 1 : 0) },
  ];
  await table.race('has', has.map((contender) => over(keys, contender)));
}

// The same job in stores of growing size, and what an item takes.
async function growth(table, env) {
  const sizes = table.full ? [1_000, 10_000, 100_000, 1_000_000] : [1_000, 10_000, 100_000];
  const base = {};
  for (const size of sizes) {
    table.say(`growth: ${size} rows ...`);
    const store = openSync().sync;
    const cache = new LRUCache({ max: size + 1, ttl: TTL });
    const names = list(size);
    const payload = new Uint8Array(32).fill(1);
    // What a row takes beyond its text and value, here and in the peer.
    const own = bytes(env, size, store, () => {
      for (const name of names) store.tryLock(name, { ttl: 1e9, owner: 'worker-1' });
    });
    const theirs = bytes(env, size, undefined, () => {
      for (const name of names) cache.set(name, { owner: 'worker-1', token: 1 });
    });
    const pair = await each(size, (at) => store.tryLock(`extra/${at}`, WITH_TTL).release());
    const ownEntries = bytes(env, size, store, () => {
      for (const name of names) store.entries.put(name, payload, { ttl: 1e9 });
    });
    const get = await each(size, (at) => store.entries.get(names[(at * 7919) % size]).length === 32);
    for (const [job, took] of Object.entries({ 'acquire and release': pair, get })) {
      base[job] ??= took;
      table.figure(`${job} among ${size} rows`, `itself among ${sizes[0]}`, took / base[job], null, human(took));
    }
    if (env.heap && size >= 100_000) {
      table.figure(`bytes a lease, ${size}`, 'lru-cache', own / theirs, null, `${own.toFixed(0)} against ${theirs.toFixed(0)}`);
      table.figure(`bytes an entry of 32, ${size}`, 'itself', ownEntries, null, 'key and value included');
    }
    store.close();
  }
}

function bytes({ heap }, items, store, fill) {
  if (!heap) return fill();
  const used = () => heap() + (store?.stats().wasmBytes ?? 0);
  const before = used();
  fill();
  return (used() - before) / items;
}

async function each(size, job) {
  const rounds = [];
  for (let round = 0; round < 13; round++) {
    await new Promise((resolve) => setTimeout(resolve, 1));
    const start = performance.now();
    for (let at = 0; at < 2000; at++) if (!job(round * 2000 + at)) throw new Error(`the job failed among ${size}`);
    // The first two warm up.
    if (round > 1) rounds.push((performance.now() - start) / 2000);
  }
  return median(rounds);
}
