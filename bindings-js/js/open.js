// Opening: the options, and where the WebAssembly comes from.
import { Core } from './core.js';
import { AlkError, invalid, kindOf } from './error.js';
import { bytesOf, known, limit } from './input.js';
import { LocalStore, SyncStore } from './store.js';

const OPTIONS = ['module', 'clock', 'maxLocks', 'maxEntries', 'maxBytes'];

/** The two functions of an entry. `own` is where its WebAssembly comes from, where it has one. */
export function opener(own) {
  return {
    async open(options) {
      const { module, settings } = read(options, own);
      return make(await module.compile(), settings);
    },
    openSync(options) {
      const { module, settings } = read(options, own);
      return make(module.compileSync(), settings);
    },
  };
}

function read(options, own) {
  const { module, clock, maxLocks, maxEntries, maxBytes } = known(options, OPTIONS, 'open');
  if (clock !== undefined && typeof clock !== 'function') throw invalid(`open: clock must be a function, not ${kindOf(clock)}`);
  const settings = {
    clock,
    maxLocks: limit(maxLocks, 'open: maxLocks'),
    maxEntries: limit(maxEntries, 'open: maxEntries'),
    maxBytes: limit(maxBytes, 'open: maxBytes'),
  };
  if (module !== undefined) return { module: source(module), settings };
  if (own === undefined) throw invalid('open: module is missing: give the WebAssembly as a URL, as bytes or compiled');
  return { module: own, settings };
}

function make(module, settings) {
  try {
    return new LocalStore(new SyncStore(new Core(module, settings)));
  } catch (cause) {
    throw failed('the WebAssembly could not be started: is it that of this version of alkstore?', cause);
  }
}

const failed = (message, cause) => new AlkError('DATABASE', message, { cause });

const REFUSED = "the WebAssembly could not be compiled: a page's Content-Security-Policy must allow 'wasm-unsafe-eval'";

const tagOf = (value) => Object.prototype.toString.call(value);

function source(module) {
  if (tagOf(module) === '[object WebAssembly.Module]') return compiled(() => module);
  if (tagOf(module) === '[object URL]') return fetched(module);
  if (typeof module === 'string') throw invalid('open: module must not be a string: make it a URL');
  return fromBytes(() => bytesOf(module, 'module'));
}

/** WebAssembly that the platform has compiled. */
export function compiled(module) {
  return { compile: async () => module(), compileSync: module };
}

/** Bytes, compiled once. A failure is not kept: the next call tries again. */
export function fromBytes(bytes) {
  let ready;
  let pending;
  return {
    async compile() {
      if (ready !== undefined) return ready;
      try {
        pending ??= WebAssembly.compile(bytes());
        return (ready = await pending);
      } catch (cause) {
        throw cause instanceof AlkError ? cause : failed(REFUSED, cause);
      } finally {
        pending = undefined;
      }
    },
    compileSync() {
      try {
        return (ready ??= new WebAssembly.Module(bytes()));
      } catch (cause) {
        throw cause instanceof AlkError ? cause : failed(REFUSED, cause);
      }
    },
  };
}

// What was fetched from where, as long as it succeeded.
const modules = new Map();

function fetched(url) {
  return {
    async compile() {
      const { href } = url;
      const pending = modules.get(href) ?? load(url);
      modules.set(href, pending);
      try {
        return await pending;
      } catch (cause) {
        modules.delete(href);
        throw cause instanceof AlkError ? cause : failed(`the WebAssembly could not be loaded from ${url.protocol}//${url.host}${url.pathname}`, cause);
      }
    },
    compileSync() {
      throw invalid('openSync: module must be bytes or compiled: a URL needs open');
    },
  };
}

async function load(url) {
  if (url.protocol === 'file:') {
    // Only Node-like runtimes open such URLs, and their fetch does not.
    const fs = globalThis.process?.getBuiltinModule?.('node:fs/promises');
    if (fs) return WebAssembly.compile(await fs.readFile(url));
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  // Compiling while it streams needs the right media type, which not every server sends.
  return WebAssembly.compile(await response.arrayBuffer());
}
