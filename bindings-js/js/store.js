// The store, without promises and with them.
import { atomic, transact } from './changes.js';
import { AFTER, NAME, NONE, PREFIX } from './core.js';
import { SyncEntries } from './entries.js';
import { AlkError } from './error.js';
import { byteLength, bytesOf, known, limit } from './input.js';
import { acquire, checkAll, forceRelease, Lease, rebuild, SyncLease } from './lease.js';
import { sweep } from './sweep.js';
import { SyncGcWindow } from './window.js';

export class SyncStore {
  #core;

  constructor(core) {
    this.#core = core;
    this.entries = new SyncEntries(core);
    this.window = new SyncGcWindow(core);
  }

  tryLock(name, options) {
    return acquire(this.#core, SyncLease, name, options);
  }

  lease(parts) {
    return rebuild(this.#core, SyncLease, parts);
  }

  lockInfo(name) {
    const core = this.#core;
    const rows = infos(core.call('lock_info', core.write(name, NAME, 0), core.now()));
    return rows.length === 0 ? null : rows[0];
  }

  queryLocks(prefix = '', options) {
    const core = this.#core;
    const { after, limit: atMost } = known(options, ['after', 'limit'], 'queryLocks');
    const prefixBytes = core.write(prefix, PREFIX, 0);
    const afterBytes = after === undefined ? NONE : core.write(after, AFTER, 1);
    const held = infos(core.call('list_locks', prefixBytes, afterBytes, limit(atMost, 'queryLocks: limit'), core.now()));
    return { held, pending: [] };
  }

  forceRelease(name, options) {
    return forceRelease(this.#core, name, options);
  }

  atomic(ops) {
    return atomic(this.#core, ops);
  }

  tx(fn) {
    return transact(this.#core, fn);
  }

  purgeLapsed(options) {
    const core = this.#core;
    return core.call('purge_lapsed', limit(known(options, ['limit'], 'purgeLapsed').limit, 'purgeLapsed: limit'), core.now());
  }

  snapshot() {
    const core = this.#core;
    const size = core.call('snapshot');
    try {
      return new Uint8Array(core.wasm.memory.buffer, core.left(0), size).slice();
    } catch (cause) {
      throw new AlkError('CAPACITY', 'there is no memory left for a snapshot', { cause });
    } finally {
      core.call('end_snapshot');
    }
  }

  restore(snapshot) {
    const core = this.#core;
    const bytes = bytesOf(snapshot, 'snapshot');
    const length = byteLength(bytes);
    core.call('begin_restore', length);
    // Another thread may shrink what it shares, never by less than what is copied.
    new Uint8Array(core.wasm.memory.buffer, core.left(0), length).set(bytes);
    core.call('restore');
    if (core.watched.size > 0) checkAll(core);
  }

  stats() {
    const core = this.#core;
    core.call('stats');
    const [locks, entries, window, bytes, revision] = [0, 1, 2, 3, 4].map((place) => core.left(place));
    return { locks, entries, window, bytes, revision, wasmBytes: core.wasm.memory.buffer.byteLength };
  }

  now() {
    this.#core.call('check_open');
    return this.#core.now();
  }

  close() {
    this.#core.close();
  }

  /** For the store with promises, whose leases are of another kind. */
  static lock(store, name, options) {
    return acquire(store.#core, Lease, name, options);
  }

  static rebuild(store, parts) {
    return rebuild(store.#core, Lease, parts);
  }

  /** A sweep takes its time, so there is none without promises. */
  static sweep(store, options) {
    return sweep(store.#core, options);
  }
}

function infos(cells) {
  const rows = [];
  for (let i = 0; i < cells.length; i += 5) {
    rows.push({ name: cells[i], owner: cells[i + 1], token: cells[i + 2], expiresAt: cells[i + 3], lapsed: cells[i + 4] });
  }
  return rows;
}

// The store with promises is the one without them: whatever is wrong with a call rejects.
class Promised {
  constructor(sync) {
    Object.defineProperty(this, 'sync', { value: sync });
  }
}

class Entries extends Promised {}

class GcWindow extends Promised {}

export class LocalStore extends Promised {
  constructor(sync) {
    super(sync);
    this.entries = new Entries(sync.entries);
    this.window = new GcWindow(sync.window);
  }

  async tryLock(name, options) {
    return SyncStore.lock(this.sync, name, options);
  }

  lease(parts) {
    return SyncStore.rebuild(this.sync, parts);
  }

  sweep(options) {
    return SyncStore.sweep(this.sync, options);
  }
}

function promise(Kind, verbs) {
  for (const verb of verbs) {
    const method = { async [verb](...args) {
      return this.sync[verb](...args);
    } };
    Object.defineProperty(Kind.prototype, verb, { value: method[verb], configurable: true, writable: true });
  }
}

promise(Entries, ['get', 'getEntry', 'has', 'put', 'putIfAbsent', 'touch', 'delete', 'list']);
promise(GcWindow, [
  'stage', 'unstage', 'take', 'claim', 'settle', 'requeue', 'mark', 'finish', 'delete', 'judge', 'list', 'info', 'stats',
  'beginSweep', 'extendSweep', 'endSweep',
]);
promise(LocalStore, ['lockInfo', 'queryLocks', 'forceRelease', 'atomic', 'purgeLapsed', 'snapshot', 'restore', 'stats', 'now', 'close']);

if (Symbol.asyncDispose) LocalStore.prototype[Symbol.asyncDispose] = LocalStore.prototype.close;
if (Symbol.dispose) SyncStore.prototype[Symbol.dispose] = SyncStore.prototype.close;
