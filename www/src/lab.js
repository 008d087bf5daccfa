// The lab without its page: a clock, owners that want locks, and what they did. The store is the real one; only the
// owners are made up. Nothing here draws.
import { acquire, finish, keep, openStore } from './run.js';

export const LOCKS = ['printer', 'ledger'];
export const TTL = 6_000;
/** Beyond this an owner's past is forgotten. */
export const KEPT = 90_000;
const NAMES = ['Ada', 'Ben', 'Cleo', 'Dora', 'Emil', 'Fay', 'Gus', 'Hana'];
export const MOST = NAMES.length;
const STEP = 200;
const RETRY = 600;
const WORK = [9_000, 7_000, 11_000];
const REST = 2_600;

/** Someone who works under leases, as a worker or a service would: acquire, renew, write, release, rest. */
class Owner {
  constructor(lab, index) {
    this.lab = lab;
    this.index = index;
    this.name = NAMES[index];
    this.state = 'resting';
    this.frozen = false;
    this.dead = false;
    this.lease = null;
    this.turn = index;
    this.next = lab.clock.now + index * 700;
    this.segments = [];
  }

  get lock() {
    return LOCKS[this.turn % LOCKS.length];
  }

  /** What it does at this instant of the lab. */
  async act() {
    const { clock, store } = this.lab;
    if (this.dead || this.frozen || clock.now < this.next) return;
    if (this.lease === null) {
      const lease = await acquire(store, this.lock, this.name);
      if (lease === null) {
        this.#become('waiting');
        this.next = clock.now + RETRY;
        return;
      }
      this.lease = lease;
      this.until = clock.now + WORK[this.turn % WORK.length];
      this.#become('holding', { token: lease.token, deadline: lease.expiresAt });
      this.lab.tell(`${this.name} took ${lease.name} with token ${lease.token}`);
    } else if (clock.now >= this.until) {
      try {
        await finish(store, this.lease, `${this.name}, token ${this.lease.token}`);
        this.lab.tell(`${this.name} wrote and released ${this.lease.name}`);
        this.#rest();
      } catch (error) {
        if (error.code !== 'LEASE_LOST') throw error;
        this.#lose();
      }
    } else if (this.lease.expiresAt - clock.now <= TTL / 2) {
      if (await keep(this.lease)) this.#current().deadline = this.lease.expiresAt;
      else this.#lose();
    }
  }

  freeze() {
    this.frozen = true;
    if (this.lease === null) this.#become('resting');
  }

  thaw() {
    this.frozen = false;
    this.next = this.lab.clock.now;
    // A frozen owner has not noticed that its work is over: the first thing that it does is to write.
    if (this.lease !== null) this.until = this.lab.clock.now;
  }

  kill() {
    this.dead = true;
    this.frozen = false;
    if (this.lease === null) this.#become('resting');
    else this.lease = null;
    this.state = 'dead';
  }

  /** The bars of the chart: each with a kind, from and to. */
  bars() {
    const { now } = this.lab.clock;
    const bars = [];
    for (const { state, lock, token, from, to, deadline, lost } of this.segments) {
      const end = to ?? now;
      if (state === 'waiting') bars.push({ kind: 'waiting', lock, from, to: end });
      if (state !== 'holding') continue;
      const lapse = Math.min(deadline, end);
      bars.push({ kind: 'held', lock, token, from, to: lapse, deadline: to === undefined && deadline > now ? deadline : undefined });
      // Between the deadline and the moment at which its owner notices, if it ever does.
      if (end > deadline) bars.push({ kind: 'lapsed', lock, token, from: deadline, to: this.dead ? Math.min(end, deadline + 1_500) : end });
      if (lost) bars.push({ kind: 'lost', lock, token, from: end, to: end });
    }
    return bars;
  }

  /** In words, for the table. */
  status() {
    const { now } = this.lab.clock;
    if (this.dead) return 'killed';
    if (this.lease !== null) {
      const left = this.lease.expiresAt - now;
      if (left <= 0) return this.frozen ? 'frozen; its lease has lapsed' : 'its lease has lapsed';
      return this.frozen ? 'frozen while it holds' : 'holds';
    }
    if (this.frozen) return 'frozen';
    return this.state === 'waiting' ? 'waits' : 'rests';
  }

  #current() {
    return this.segments.at(-1);
  }

  #become(state, more = {}) {
    if (state === this.state && state !== 'holding') return;
    const { now } = this.lab.clock;
    const current = this.#current();
    if (current !== undefined) current.to ??= now;
    this.state = state;
    if (state !== 'resting') this.segments.push({ state, lock: this.lock, from: now, ...more });
    this.segments = this.segments.filter(({ to }) => to === undefined || to > now - KEPT);
  }

  #rest() {
    this.lease = null;
    this.#become('resting');
    this.turn += 1;
    this.next = this.lab.clock.now + REST;
  }

  #lose() {
    const { name, token } = this.lease;
    this.#current().lost = true;
    this.lab.tell(`${this.name} lost ${name}: token ${token} is refused with LEASE_LOST`, true);
    this.#rest();
  }
}

export class Lab {
  /** `loudly(text)` hears of what a person should be told of; `changed()` of everything. */
  static async open({ loudly, changed }) {
    const lab = new Lab(loudly, changed);
    lab.store = await openStore(lab.clock);
    for (let index = 0; index < 3; index += 1) lab.add();
    return lab;
  }

  constructor(loudly, changed) {
    this.clock = { now: Date.now() };
    this.start = this.clock.now;
    this.manual = false;
    this.owners = [];
    this.events = [];
    this.loudly = loudly;
    this.changed = changed;
    this.waiting = Promise.resolve();
  }

  get elapsed() {
    return this.clock.now - this.start;
  }

  add() {
    const index = NAMES.findIndex((name) => !this.owners.some((owner) => owner.name === name));
    if (index === -1) return undefined;
    const owner = new Owner(this, index);
    owner.next = this.clock.now;
    if (this.owners.length < 3) owner.next += index * 700;
    this.owners.push(owner);
    return owner;
  }

  remove(owner) {
    this.owners = this.owners.filter((other) => other !== owner);
  }

  tell(text, loud = false) {
    this.events = [{ at: this.elapsed, text, loud }, ...this.events].slice(0, 40);
    if (loud) this.loudly(text);
  }

  /**
   * Moves the clock forward in small steps, so that owners act on the way. Never back. Calls queue up behind each
   * other, since every step asks the store.
   */
  advance(ms) {
    return this.exclusive(async () => {
      const to = this.clock.now + Math.max(0, ms);
      // After a long absence, coarser steps.
      const step = Math.max(STEP, ms / 500);
      while (this.clock.now < to) {
        this.clock.now = Math.min(to, this.clock.now + step);
        for (const owner of this.owners) await owner.act();
      }
      this.changed();
    });
  }

  exclusive(work) {
    const done = this.waiting.then(work);
    this.waiting = done.catch(() => {});
    return done;
  }
}
