// Changesets and transactions.
import { KEY, NAME } from './core.js';
import { invalid, kindOf } from './error.js';
import { copyOf, duplicate, duration, instant, items, keeps, known, maybeRevision, object, revision } from './input.js';
import { guardOf } from './lease.js';

// What each operation takes, and how it is added. All of it is read and copied before the first is added,
// so that no code of the user's runs in between.
const OPS = {
  guard: {
    takes: ['op', 'name', 'token'],
    read: (core, op, call) => guardOf(core, op, call),
    add: (core, { name, token }) => core.call('change_guard', core.write(name, NAME, 0), token),
  },
  check: {
    takes: ['op', 'key', 'version'],
    read: (core, { key, version }, call) => ({ key: keyOf(core, key), version: version === null ? 0 : revision(version, `${call}: version`) }),
    add: (core, { key, version }) => core.call('change_check', core.writeKey(key, KEY, 0), version),
  },
  put: {
    takes: ['op', 'key', 'value', 'ttl', 'ifVersion'],
    read: (core, { key, value, ttl, ifVersion }, call) => written(core, key, value, ttl, maybeRevision(ifVersion, `${call}: ifVersion`)),
    add: (core, written) => addPut(core, written, false),
  },
  putIfAbsent: {
    takes: ['op', 'key', 'value', 'ttl'],
    read: (core, { key, value, ttl }) => written(core, key, value, ttl, 0),
    add: (core, written) => addPut(core, written, true),
  },
  delete: {
    takes: ['op', 'key'],
    read: (core, { key }) => ({ key: keyOf(core, key) }),
    add: (core, { key }) => core.call('change_delete', core.writeKey(key, KEY, 0)),
  },
  stage: {
    takes: ['op', 'key', 'visibleAfter', 'restage'],
    read: (core, { key, visibleAfter, restage }, call) => ({
      key: keyOf(core, key),
      at: instant(visibleAfter, `${call}: visibleAfter`),
      keep: keeps(restage, call),
    }),
    add: (core, { key, at, keep }) => core.call('change_stage', core.writeKey(key, KEY, 0), at, keep),
  },
  unstage: {
    takes: ['op', 'key'],
    read: (core, { key }) => ({ key: keyOf(core, key) }),
    add: (core, { key }) => core.call('change_unstage', core.writeKey(key, KEY, 0)),
  },
};

const written = (core, key, value, ttl, version) => ({ key: keyOf(core, key), value: copyOf(core, value), ttl, version });

/** A key as it is now: bytes may change hands later. */
export function keyOf(core, key) {
  core.call('check_key', core.writeKey(key, KEY, 0));
  return typeof key === 'string' ? key : duplicate(key);
}

function addPut(core, { key, value, ttl, version }, create) {
  const keyBytes = core.writeKey(key, KEY, 0);
  core.call('change_put', keyBytes, value, value.length, create, version, ttl !== undefined, ttl === undefined ? 0 : duration(ttl));
}

export function atomic(core, ops) {
  const steps = items(ops, 'atomic: the operations').map((op, index) => {
    const call = `atomic: operation ${index}`;
    object(op, call);
    const name = op.op;
    const kind = typeof name === 'string' && Object.hasOwn(OPS, name) ? OPS[name] : undefined;
    if (kind === undefined) throw invalid(`${call}: op must be one of ${Object.keys(OPS).join(', ')}`);
    known(op, kind.takes, call);
    return { kind, step: kind.read(core, op, call) };
  });
  const now = core.now();
  core.call('begin_changes');
  try {
    for (const { kind, step } of steps) kind.add(core, step);
    return { versions: versions(core.call('commit_changes', now)) };
  } catch (error) {
    if (error.code !== 'POISONED') core.call('begin_changes');
    throw error;
  }
}

function versions(cells) {
  const rows = [];
  for (let i = 0; i < cells.length; i += 2) rows.push({ key: cells[i], version: cells[i + 1] });
  return rows;
}

const version = (number) => (number === 0 ? null : number);

class Tx {
  #core;
  #id;

  constructor(core, id) {
    this.#core = core;
    this.#id = id;
  }

  get(key) {
    const value = this.#find(key);
    return value === null ? null : duplicate(value);
  }

  getEntry(key) {
    const value = this.#find(key);
    if (value === null) return null;
    return { version: version(this.#core.left(0)), value: duplicate(value) };
  }

  has(key) {
    return this.#find(key) !== null;
  }

  put(key, value, options) {
    const { ttl, ifVersion } = known(options, ['ttl', 'ifVersion'], 'tx.put');
    return this.#put(key, value, ttl, ifVersion, false);
  }

  putIfAbsent(key, value, options) {
    const { ttl } = known(options, ['ttl'], 'tx.putIfAbsent');
    return this.#put(key, value, ttl, undefined, true);
  }

  delete(key) {
    const core = this.#core;
    return core.call('tx_delete', this.#id, core.writeKey(key, KEY, 0), core.now()) === 1;
  }

  stage(key, visibleAfter, options) {
    const core = this.#core;
    const keep = keeps(known(options, ['restage'], 'tx.stage').restage, 'tx.stage');
    core.call('tx_stage', this.#id, core.writeKey(key, KEY, 0), instant(visibleAfter, 'tx.stage: visibleAfter'), keep);
  }

  unstage(key) {
    const core = this.#core;
    core.call('tx_unstage', this.#id, core.writeKey(key, KEY, 0));
  }

  guard(guard) {
    const core = this.#core;
    const { name, token } = guardOf(core, guard, 'tx.guard');
    core.call('tx_guard', this.#id, core.write(name, NAME, 0), token);
  }

  #find(key) {
    const core = this.#core;
    return core.call('tx_get', this.#id, core.writeKey(key, KEY, 0), core.now());
  }

  #put(key, value, ttl, ifVersion, create) {
    const core = this.#core;
    const now = core.now();
    const { key: own, value: copy, version: over } = written(core, key, value, ttl, maybeRevision(ifVersion, 'tx.put: ifVersion'));
    const millis = ttl === undefined ? 0 : duration(ttl);
    const staged = core.call('tx_put', this.#id, core.writeKey(own, KEY, 0), copy, copy.length, create, over, ttl !== undefined, millis, now);
    return staged === 1 ? { staged: true } : { staged: false, version: version(core.left(0)) };
  }
}

export function transact(core, fn) {
  if (typeof fn !== 'function') throw invalid(`tx: it takes a function, not ${kindOf(fn)}`);
  const id = core.call('tx_begin');
  try {
    const result = fn(new Tx(core, id));
    if (typeof result?.then === 'function') {
      // Its own failure, for example that the transaction has ended, is of no more interest.
      result.then(undefined, () => {});
      throw invalid('tx: the function must not be async: the transaction ends when it returns');
    }
    core.call('tx_commit', id, core.now());
    return result;
  } finally {
    core.forget(id);
  }
}
