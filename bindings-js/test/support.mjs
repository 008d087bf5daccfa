// What several tests use.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { openSync } from 'alkstore';

export const require = createRequire(import.meta.url);

/** Where the tests are installed: the folder with `node_modules`. */
export const ROOT = new URL('..', import.meta.url);

export const wasmPath = require.resolve('alkstore/alkstore.wasm');
export const wasmBytes = () => readFileSync(wasmPath);

export const text = (bytes) => new TextDecoder().decode(bytes);
export const bytes = (string) => new TextEncoder().encode(string);

/** A store on a clock that stands still until it is moved. */
export function manual(options = {}) {
  const clock = { now: 1_000_000 };
  const store = openSync({ clock: () => clock.now, ...options });
  return { store, sync: store.sync, clock };
}

/** The AlkError of this code that `fn` throws. */
export function thrown(code, fn, message) {
  let error;
  try {
    fn();
  } catch (caught) {
    error = caught;
  }
  return isAlk(code, error, message);
}

/** The same for a promise. */
export async function rejected(code, promise, message) {
  return isAlk(code, await promise.then(() => undefined, (caught) => caught), message);
}

function isAlk(code, error, message = '') {
  assert.ok(error, `${message} should fail with ${code}`);
  assert.equal(error.name, 'AlkError', `${message} ${error.stack}`);
  assert.equal(error.code, code, `${message} ${error.stack}`);
  return error;
}

/** The package's WebAssembly with a limit to its memory, in pages of 64 KiB beyond what it begins with. */
export function capped(pages) {
  const from = wasmBytes();
  const parts = [from.subarray(0, 8)];
  for (let at = 8; at < from.length; ) {
    const id = from[at];
    const [size, body] = leb(from, at + 1);
    if (id === 5) {
      assert.equal(from[body], 1, 'one memory');
      assert.equal(from[body + 1], 0, 'without a maximum');
      const [least] = leb(from, body + 2);
      const content = [1, 1, ...unleb(least), ...unleb(least + pages)];
      parts.push(Uint8Array.from([5, ...unleb(content.length), ...content]));
    } else {
      parts.push(from.subarray(at, body + size));
    }
    at = body + size;
  }
  return Buffer.concat(parts);
}

function leb(from, at) {
  let number = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = from[at++];
    number |= (byte & 127) << shift;
    if (byte < 128) return [number, at];
  }
}

function unleb(number) {
  const out = [];
  do {
    out.push((number & 127) | (number > 127 ? 128 : 0));
    number >>>= 7;
  } while (number > 0);
  return out;
}
