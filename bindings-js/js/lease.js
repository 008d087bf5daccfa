// Leases: plain objects over name, owner and token. Nothing in WebAssembly belongs to them.
import { AlkError, invalid, kindOf } from './error.js';
import { duration, known, object, revision, unknown } from './input.js';
import { ENDED, NAME, NONE, OWNER } from './core.js';

// Longer timers fire at once.
const MAX_DELAY = 2 ** 31 - 1;

class Held {
  #core;
  #owner;
  #ttl;
  #slot;
  #generation;
  #watch;

  constructor(core, name, owner, token, expiresAt, ttl, slot, generation) {
    this.name = name;
    this.token = token;
    this.expiresAt = expiresAt;
    this.#core = core;
    this.#owner = owner;
    this.#ttl = ttl;
    this.#slot = slot;
    this.#generation = generation;
    this.#watch = undefined;
  }

  get owner() {
    return (this.#owner ??= this.#core.call('minted_owner', this.token));
  }

  get signal() {
    return (this.#watch ??= new Watch(this.#core, this)).signal;
  }

  toJSON() {
    return { name: this.name, owner: this.owner, token: this.token };
  }

  static renew(lease, ttl) {
    const core = lease.#core;
    const wanted = ttl === undefined ? lease.#ttl : ttl;
    const millis = duration(wanted);
    const now = core.now();
    let renewed = 0;
    try {
      if (lease.#slot !== NONE) renewed = core.renewBy(lease.#slot, lease.#generation, lease.token, millis, now);
    } catch (trap) {
      throw core.trapped(trap);
    }
    if (renewed === -1) throw core.error();
    if (renewed === 0) renewed = core.call('renew', ...lease.#write(), lease.token, millis, now);
    if (renewed === 1) {
      lease.expiresAt = core.left(0);
      lease.#ttl = millis;
      lease.#watch?.arm(now);
    } else {
      lease.#watch?.lose();
    }
    return renewed === 1;
  }

  static release(lease) {
    const core = lease.#core;
    core.enter();
    let released = 0;
    try {
      if (lease.#slot !== NONE) released = core.releaseBy(lease.#slot, lease.#generation, lease.token);
    } catch (trap) {
      throw core.trapped(trap);
    }
    if (released === -1) throw core.error();
    if (released === 0) released = core.call('release', ...lease.#write(), lease.token);
    if (lease.#watch !== undefined) {
      if (released === 1) lease.#watch.end();
      else lease.#watch.lose();
    }
    if (released === 1 && core.watched.size > 0) checkAll(core, lease.name);
    return released === 1;
  }

  static dispose(lease) {
    try {
      Held.release(lease);
    } catch (error) {
      // With the store the lease is gone as well.
      if (error.code !== 'CLOSED' && error.code !== 'POISONED') throw error;
    }
  }

  /** Refuses a lease of another store, whose token means nothing here. */
  static check(core, parts) {
    if (#core in parts && parts.#core !== core) throw invalid('the lease is one of another store');
  }

  #write() {
    const core = this.#core;
    return [core.write(this.name, NAME, 0), this.#owner === undefined ? NONE : core.write(this.#owner, OWNER, 1)];
  }
}

export class Lease extends Held {
  async renew(ttl) {
    return Held.renew(this, ttl);
  }

  async release() {
    return Held.release(this);
  }
}

export class SyncLease extends Held {
  renew(ttl) {
    return Held.renew(this, ttl);
  }

  release() {
    return Held.release(this);
  }
}

if (Symbol.asyncDispose) {
  Lease.prototype[Symbol.asyncDispose] = async function () {
    Held.dispose(this);
  };
}
if (Symbol.dispose) {
  SyncLease.prototype[Symbol.dispose] = function () {
    Held.dispose(this);
  };
}

/** Looks again at the watched leases, of one name or of all: what was done may have ended any of them. */
export function checkAll(core, name) {
  // Not copied, since most are passed over; those that a listener adds meanwhile are live.
  for (const watch of core.watched) if (name === undefined || watch.lease.name === name) watch.check();
}

/** Watches one lease for its signal. It arms a timer up to the deadline; nothing here ever throws out of a timer. */
class Watch {
  constructor(core, lease) {
    this.core = core;
    this.lease = lease;
    this.timer = undefined;
    this.controller = new AbortController();
    this.signal = this.controller.signal;
    core.enter();
    core.watched.add(this);
    this.check();
  }

  /** Asks the store, and waits on or tells that the lease is lost. */
  check() {
    const { core, lease } = this;
    try {
      const now = core.now();
      const row = core.call('lock_info', core.write(lease.name, NAME, 0), now);
      if (row[2] === lease.token && row[1] === lease.owner && !row[4]) this.arm(now, row[3]);
      else this.lose();
    } catch (cause) {
      this.lose(cause);
    }
  }

  arm(now, deadline = this.lease.expiresAt) {
    if (!this.core.watched.has(this)) return;
    clearTimeout(this.timer);
    // Never shorter than a millisecond, as a clock may stand still just before the deadline.
    const delay = Math.min(Math.max(Math.ceil(deadline - now), 1), MAX_DELAY);
    this.timer = setTimeout(() => this.check(), delay);
    this.timer?.unref?.();
  }

  end() {
    clearTimeout(this.timer);
    this.core.watched.delete(this);
  }

  lose(cause) {
    if (!this.core.watched.has(this)) return;
    this.end();
    const { name, token } = this.lease;
    this.controller.abort(new AlkError('LEASE_LOST', `the lease ${token} on ${JSON.stringify(name)} is no longer live`, { cause }));
  }
}

const LOCK_OPTIONS = ['ttl', 'owner', 'renew'];

/** Takes a lock: a lease of this kind, or null. */
export function acquire(core, Kind, name, options) {
  const place = typeof name === 'string' ? core.names.get(name) : core.write(name, NAME, 0);
  if (options === undefined || options === null || typeof options !== 'object') {
    throw invalid(`tryLock: the options must be an object with a ttl, not ${kindOf(options)}`);
  }
  for (const option in options) {
    if (option !== 'ttl' && !LOCK_OPTIONS.includes(option)) throw unknown(option, 'tryLock');
  }
  const { ttl, owner, renew } = options;
  if (renew !== undefined && renew !== 'manual') {
    throw invalid("tryLock: renew must be 'manual': this version does not renew leases by itself");
  }
  const millis = duration(ttl);
  if (place === undefined) {
    const nameBytes = core.write(name, NAME, 0);
    const ownerBytes = writeOwner(core, owner, nameBytes);
    const token = core.call('try_lock', nameBytes, ownerBytes, millis, core.now());
    const slot = core.left(1) >>> 0;
    const generation = core.left(2) >>> 0;
    // Whoever loses asks again.
    core.learn(core.names, nameBytes, slot, generation);
    if (token === 0) return null;
    return new Kind(core, name, owner, token, core.left(0), millis, slot, generation);
  }
  const ownerBytes = owner === undefined ? NONE : writeOwner(core, owner, undefined);
  const now = core.now();
  let token;
  try {
    token = core.tryLockBy(place.slot, place.generation, ownerBytes, millis, now);
  } catch (trap) {
    throw core.trapped(trap);
  }
  if (token > 0) return new Kind(core, name, owner, token, core.left(0), millis, place.slot, place.generation);
  if (token === 0) return null;
  if (token !== ENDED) throw core.error();
  const nameBytes = core.write(name, NAME, 0);
  token = core.call('try_lock', nameBytes, ownerBytes, millis, now);
  if (token === 0) return null;
  const slot = core.left(1) >>> 0;
  const generation = core.left(2) >>> 0;
  core.learn(core.names, nameBytes, slot, generation);
  return new Kind(core, name, owner, token, core.left(0), millis, slot, generation);
}

function writeOwner(core, owner, nameBytes) {
  if (owner === undefined) return NONE;
  try {
    return core.write(owner, OWNER, 1);
  } catch (error) {
    // The name is judged first.
    if (nameBytes !== undefined) core.call('check_name', nameBytes);
    throw error;
  }
}

/** A lease rebuilt from its parts. */
export function rebuild(core, Kind, parts) {
  object(parts, 'lease: the parts');
  Held.check(core, parts);
  const { name, owner, token } = parts;
  const nameBytes = core.write(name, NAME, 0);
  const ownerBytes = writeOwner(core, owner === undefined ? null : owner, nameBytes);
  revision(token, 'lease: token');
  core.call('check_lease', nameBytes, ownerBytes, token);
  return new Kind(core, name, owner, token, undefined, undefined, NONE, 0);
}

/** A guard, checked as far as JavaScript can: its name is written where a second text goes. */
export function guardOf(core, guard, call) {
  object(guard, `${call}: the guard`);
  Held.check(core, guard);
  const { name, token } = guard;
  if (typeof name !== 'string') throw invalid(`${call}: the guard's name must be a string, not ${kindOf(name)}`);
  return { name, token: revision(token, `${call}: the guard's token`) };
}

export function forceRelease(core, name, options) {
  const { token } = known(options, ['token'], 'forceRelease');
  const nameBytes = core.write(name, NAME, 0);
  if (!Number.isSafeInteger(token) || token < 1) core.call('check_name', nameBytes);
  const freed = core.call('force_release', nameBytes, revision(token, 'forceRelease: token')) === 1;
  if (freed && core.watched.size > 0) checkAll(core, name);
  return freed;
}
