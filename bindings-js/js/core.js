// What is behind a store: one WebAssembly instance, its clock, and its end.
import { systemClock } from './clock.js';
import { AlkError, CODES, invalid, kindOf } from './error.js';
import { createGlue } from './glue.js';
import { byteLength, isBytes } from './input.js';

// As in src/boundary.rs.
const PART = 1536;
const FAILED = -1;
export const ENDED = -2;
/** A length that stands for "not given". */
export const NONE = 0xffff_ffff;

/** What a text is: its number is that of `check_length`. */
export const NAME = { number: 0, text: 'lock name', code: 'INVALID_NAME' };
export const OWNER = { number: 1, text: 'owner', code: 'INVALID_NAME' };
export const KEY = { number: 2, text: 'key', code: 'INVALID_ARGUMENT' };
export const PREFIX = { text: 'prefix', code: 'INVALID_ARGUMENT' };
export const AFTER = { text: "'after'", code: 'INVALID_ARGUMENT' };

const READY = 0;
const READING = 1;
const POISONED = 2;

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

export class Core {
  /** @param {WebAssembly.Module} module */
  constructor(module, { clock, maxLocks, maxEntries, maxBytes }) {
    const glue = createGlue();
    this.wasm = glue.start(new WebAssembly.Instance(module, glue.imports).exports);
    // Those of the hot paths, at hand. None is called without a look at `state` before.
    ({
      try_lock_by: this.tryLockBy,
      renew_by: this.renewBy,
      release_by: this.releaseBy,
      get_by: this.getBy,
      put_by: this.putBy,
    } = this.wasm);
    this.wasm.create(...randoms(), maxLocks, maxEntries, maxBytes);
    this.inputAt = this.wasm.input();
    this.outputAt = this.wasm.output();
    this.parts = [];
    this.numbers = [];
    this.state = READY;
    this.poison = undefined;
    this.clock = clock === undefined ? systemClock() : () => this.read(clock);
    this.names = new Places();
    this.keys = new Places();
    /** The leases whose signals are watched. */
    this.watched = new Set();
    /** The sweep that is under way. */
    this.sweep = undefined;
  }

  /** The store's clock, read before WebAssembly is entered. Refuses where nothing may be called. */
  now() {
    if (this.state !== READY) this.refuse();
    return this.clock();
  }

  /** For calls that need no time. */
  enter() {
    if (this.state !== READY) this.refuse();
  }

  /** Calls an export and throws where it failed. Hot paths call theirs directly. */
  call(name, ...args) {
    if (this.state !== READY) this.refuse();
    let answer;
    try {
      answer = this.wasm[name](...args);
    } catch (trap) {
      throw this.trapped(trap);
    }
    if (answer === FAILED || answer === false) throw this.error();
    return answer;
  }

  /** The number that the last call left behind in this place. */
  left(place) {
    if (this.numbers.length === 0) this.numbers = new Float64Array(this.wasm.memory.buffer, this.outputAt, 14);
    return this.numbers[place];
  }

  /** Writes a text into a part of the input region, and answers its length. */
  write(text, what, part) {
    if (typeof text !== 'string') throw invalid(`the ${what.text} must be a string, not ${kindOf(text)}`);
    return this.encode(text, what, part);
  }

  /** The same for what may be bytes instead. */
  writeKey(key, what, part) {
    if (typeof key === 'string') return this.encode(key, what, part);
    if (!isBytes(key)) throw invalid(`the ${what.text} must be a string or a Uint8Array, not ${kindOf(key)}`);
    const length = byteLength(key);
    if (length > PART) this.tooLong(what, length);
    this.part(part).set(key);
    return length;
  }

  encode(text, what, part) {
    const { length } = text;
    if (length > PART) this.tooLong(what, utf8Length(text));
    const bytes = this.part(part);
    for (let i = 0; i < length; i++) {
      const unit = text.charCodeAt(i);
      if (unit > 127) return this.encodeUnicode(text, what, bytes);
      bytes[i] = unit;
    }
    return length;
  }

  encodeUnicode(text, what, bytes) {
    if (!isWellFormed(text)) throw new AlkError(what.code, `the ${what.text} holds a lone surrogate, which has no UTF-8`);
    const { read, written } = encoder.encodeInto(text, bytes);
    if (read < text.length) this.tooLong(what, utf8Length(text));
    return written;
  }

  /** Remembers the place that the last call left behind for the name or key that it was given. */
  learn(places, bytes, slot, generation) {
    places.learn(this.part(0).subarray(0, bytes), slot, generation);
  }

  tooLong(what, length) {
    if (what.number !== undefined) this.call('check_length', what.number, length);
    throw new AlkError('INVALID_ARGUMENT', `the ${what.text} is ${length} bytes long, which is too long`);
  }

  part(index) {
    // What another call has written there must not be overwritten by the clock that it is reading.
    if (this.state !== READY) this.refuse();
    // Memory that has grown is a new buffer; the views on the old one are empty.
    if (this.parts.length === 0 || this.parts[0].length === 0) {
      this.parts = [0, 1].map((part) => new Uint8Array(this.wasm.memory.buffer, this.inputAt + part * PART, PART));
    }
    return this.parts[index];
  }

  /** What a call that failed left behind. */
  error() {
    const code = this.call('error_code');
    const message = this.call('error_message');
    const detail = this.call('take_error_detail');
    return new AlkError(CODES[code % 32], message, {
      cause: detail ? new Error(detail) : undefined,
      retryable: (code & 32) !== 0,
      outcomeUnknown: (code & 64) !== 0,
    });
  }

  /** Something was thrown out of WebAssembly: whatever it was doing is half done, so it is never entered again. */
  trapped(trap) {
    this.state = POISONED;
    this.poison = trap;
    // Let go of the memory: nothing in it can be trusted.
    this.wasm = undefined;
    this.parts = this.numbers = [];
    this.names = new Places();
    this.keys = new Places();
    const error = this.poisoned();
    this.loseAll(error);
    return error;
  }

  poisoned() {
    return new AlkError('POISONED', 'the store stopped in the middle of an operation and cannot be used again: open a new one', {
      cause: this.poison,
    });
  }

  refuse() {
    if (this.state === POISONED) throw this.poisoned();
    throw new AlkError('DATABASE', 'the store was called by its own clock: a clock must not use the store that reads it');
  }

  /** Reads a clock of the user's. */
  read(clock) {
    let now;
    this.state = READING;
    try {
      now = clock();
    } catch (cause) {
      throw invalid("the store's clock threw an error", cause);
    } finally {
      if (this.state === READING) this.state = READY;
    }
    if (typeof now !== 'number' || now !== now) throw invalid("the store's clock must give a number of milliseconds");
    return now;
  }

  /** Rolls a transaction back, where there is still something to roll back. */
  forget(id) {
    if (this.state === READY) this.call('tx_rollback', id);
  }

  /** Lets go of the sweep, where it is not through. */
  drop() {
    if (this.state === READY) this.call('sweep_drop');
  }

  close() {
    if (this.state === POISONED) return;
    try {
      this.wasm.close();
    } catch (trap) {
      this.trapped(trap);
      return;
    }
    this.names = new Places();
    this.keys = new Places();
    this.loseAll(new AlkError('CLOSED', 'the store is closed'));
  }

  loseAll(cause) {
    this.sweep?.fail(cause);
    for (const watch of [...this.watched]) watch.lose(cause);
  }
}

// At least so many names are remembered, at most twice as many.
const REMEMBERED = 4096;
const ASKED = 2 * REMEMBERED;

/**
 * Where names are in the tables of WebAssembly, so that a name used again need not cross. It remembers the last few
 * thousand names, and only those that come back: names that never do leave no trace.
 */
class Places {
  constructor() {
    this.young = new Map();
    this.old = new Map();
    this.newest = -1;
    /** Slots that were asked for and not remembered: see `learn`. */
    this.asked = undefined;
  }

  get(name) {
    const place = this.young.get(name);
    if (place !== undefined) return place;
    return this.old.size > 0 ? this.aged(name) : undefined;
  }

  aged(name) {
    const place = this.old.get(name);
    if (place !== undefined) this.set(name, place);
    return place;
  }

  /**
   * Remembers a place when it is asked for again soon, but not where its name was given it only now: each new name gets
   * a higher generation. Where more names come round than can be remembered, remembering them would cost more than it
   * saves. `bytes` are those of the name, of which a text is made anew: a piece of a long text would keep the whole of
   * it alive.
   */
  learn(bytes, slot, generation) {
    if (generation > this.newest) {
      this.newest = generation;
      return;
    }
    if (slot === NONE) return;
    this.asked ??= new Uint32Array(ASKED).fill(NONE);
    if (this.asked[slot % ASKED] === slot) this.set(decoder.decode(bytes), { slot, generation });
    else this.asked[slot % ASKED] = slot;
  }

  set(name, place) {
    if (this.young.size >= REMEMBERED) {
      this.old = this.young;
      this.young = new Map();
    }
    this.young.set(name, place);
  }
}

function isWellFormed(text) {
  return typeof text.isWellFormed === 'function' ? text.isWellFormed() : !/\p{Surrogate}/u.test(text);
}

function utf8Length(text) {
  let length = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit > 0x7f) length += unit > 0x7ff && (unit < 0xd800 || unit > 0xdfff) ? 2 : 1;
  }
  return length;
}

// Hash keys that nobody can guess, and what tells this store's minted owners from those of others.
function randoms() {
  const numbers = new Uint32Array(4);
  const { crypto } = globalThis;
  // Some worklets have no crypto; there nobody outside chooses names either.
  if (crypto?.getRandomValues) crypto.getRandomValues(numbers);
  else for (let i = 0; i < 4; i++) numbers[i] = Math.random() * 2 ** 32;
  return numbers;
}
