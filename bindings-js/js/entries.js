// Entries, without promises.
import { AFTER, ENDED, KEY, NAME, NONE, PREFIX } from './core.js';
import { copyOf, duplicate, duration, known, limit, maybeRevision } from './input.js';
import { guardOf } from './lease.js';

const PUT_OPTIONS = ['ttl', 'ifVersion', 'guard'];
const CREATE_OPTIONS = ['ttl', 'guard'];

export class SyncEntries {
  #core;

  constructor(core) {
    this.#core = core;
  }

  get(key) {
    const value = find(this.#core, key);
    return value === null ? null : duplicate(value);
  }

  getEntry(key) {
    return entry(this.#core, find(this.#core, key));
  }

  has(key) {
    return find(this.#core, key) !== null;
  }

  put(key, value, options) {
    const core = this.#core;
    const version = write(core, key, value, known(options, PUT_OPTIONS, 'put'), false, 'put');
    if (version > 0) return { stored: true, version };
    const current = core.left(0);
    return { stored: false, version: current === 0 ? null : current };
  }

  putIfAbsent(key, value, options) {
    const core = this.#core;
    const now = core.now();
    const stored = write(core, key, value, known(options, CREATE_OPTIONS, 'putIfAbsent'), true, 'putIfAbsent', now) > 0;
    return { stored, ...entry(core, find(core, key, now)) };
  }

  touch(key, ttl) {
    const core = this.#core;
    const keyBytes = core.writeKey(key, KEY, 0);
    return core.call('touch', keyBytes, duration(ttl), core.now()) === 1;
  }

  delete(key, options) {
    const core = this.#core;
    const { ifVersion } = known(options, ['ifVersion'], 'delete');
    const keyBytes = core.writeKey(key, KEY, 0);
    return core.call('delete_entry', keyBytes, maybeRevision(ifVersion, 'delete: ifVersion'), core.now()) === 1;
  }

  list(prefix = '', options) {
    const core = this.#core;
    const { after, limit: atMost } = known(options, ['after', 'limit'], 'list');
    const prefixBytes = core.writeKey(prefix, PREFIX, 0);
    const afterBytes = after === undefined ? NONE : core.writeKey(after, AFTER, 1);
    const cells = core.call('list', prefixBytes, afterBytes, limit(atMost, 'list: limit'), core.now());
    const rows = [];
    for (let i = 0; i < cells.length; i += 4) {
      rows.push({ key: cells[i], version: cells[i + 1], expiresAt: maybeInstant(cells[i + 2]), size: cells[i + 3] });
    }
    return rows;
  }
}

/** An instant that may be missing, which is NaN in WebAssembly. */
export const maybeInstant = (at) => (at === at ? at : null);

function entry(core, value) {
  if (value === null) return null;
  const version = core.left(0);
  const expiresAt = maybeInstant(core.left(1));
  return { value: duplicate(value), version, expiresAt };
}

/** The store's own bytes, never to be handed out; or null. Version and deadline are left behind. */
function find(core, key, now) {
  const place = typeof key === 'string' ? core.keys.get(key) : undefined;
  if (place !== undefined) {
    now ??= core.now();
    let value;
    try {
      value = core.getBy(place.slot, place.generation, now);
    } catch (trap) {
      throw core.trapped(trap);
    }
    if (value === false) throw core.error();
    if (value !== undefined) return value;
  }
  const keyBytes = core.writeKey(key, KEY, 0);
  const value = core.call('get', keyBytes, now ?? core.now());
  if (value !== null && typeof key === 'string') core.learn(core.keys, keyBytes, core.left(2) >>> 0, core.left(3) >>> 0);
  return value;
}

/** The new version, or 0 where it is not stored and the version in the way is left behind. */
function write(core, key, value, { ttl, ifVersion, guard }, create, call, now) {
  const place = typeof key === 'string' && guard === undefined ? core.keys.get(key) : undefined;
  if (place === undefined) return writeByKey(core, key, value, ttl, ifVersion, guard, create, call, now);
  const version = maybeRevision(ifVersion, `${call}: ifVersion`);
  const copy = copyOf(core, value);
  const millis = ttl === undefined ? 0 : duration(ttl);
  now ??= core.now();
  let stored;
  try {
    stored = core.putBy(place.slot, place.generation, copy, copy.length, create, version, ttl !== undefined, millis, now);
  } catch (trap) {
    throw core.trapped(trap);
  }
  if (stored >= 0) return stored;
  if (stored !== ENDED) throw core.error();
  return writeByKey(core, key, copy, ttl, ifVersion, guard, create, call, now);
}

function writeByKey(core, key, value, ttl, ifVersion, guard, create, call, now) {
  let copy, version, guardName, guardToken;
  try {
    copy = copyOf(core, value);
    version = maybeRevision(ifVersion, `${call}: ifVersion`);
    if (guard !== undefined) ({ name: guardName, token: guardToken } = guardOf(core, guard, call));
  } catch (error) {
    // The key is judged first.
    core.call('check_key', core.writeKey(key, KEY, 0));
    throw error;
  }
  // Only now, when no code of the user's runs any more that could use the input region.
  const keyBytes = core.writeKey(key, KEY, 0);
  const millis = ttl === undefined ? 0 : duration(ttl);
  const guardBytes = guardName === undefined ? NONE : core.write(guardName, NAME, 1);
  now ??= core.now();
  const stored = core.call('put', keyBytes, copy, copy.length, create, version, ttl !== undefined, millis, guardBytes, guardToken ?? 0, now);
  if (typeof key === 'string') core.learn(core.keys, keyBytes, core.left(2) >>> 0, core.left(3) >>> 0);
  return stored;
}
