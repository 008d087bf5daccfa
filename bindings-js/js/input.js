// What comes from the caller: types are checked here, before WebAssembly is entered. What a name, a key or a duration
// may be is judged there.
import { AlkError, invalid, kindOf } from './error.js';

const typedArray = Object.getPrototypeOf(Uint8Array.prototype);
const getter = (prototype, name) => {
  const { get } = Object.getOwnPropertyDescriptor(prototype, name);
  return (of) => get.call(of);
};

// The getters themselves, since an object's own properties may say anything, and `instanceof` knows one realm only.
const arrayKind = getter(typedArray, Symbol.toStringTag);
const arrayBuffer = getter(typedArray, 'buffer');
const arrayOffset = getter(typedArray, 'byteOffset');
const arrayLength = getter(typedArray, 'byteLength');
const bufferLength = getter(ArrayBuffer.prototype, 'byteLength');
const sharedLength = typeof SharedArrayBuffer === 'undefined' ? bufferLength : getter(SharedArrayBuffer.prototype, 'byteLength');
const viewBuffer = getter(DataView.prototype, 'buffer');
const viewOffset = getter(DataView.prototype, 'byteOffset');
const viewLength = getter(DataView.prototype, 'byteLength');

export const isBytes = (value) => arrayKind(value) === 'Uint8Array';
export const byteLength = arrayLength;

/** A view on the bytes of a buffer or of any view on one. Throws where they are not there: detached, out of bounds. */
function viewOn(value) {
  const kind = arrayKind(value);
  if (kind !== undefined) {
    typedArray.at.call(value, 0);
    return kind === 'Uint8Array' ? value : new Uint8Array(arrayBuffer(value), arrayOffset(value), arrayLength(value));
  }
  if (ArrayBuffer.isView(value)) return new Uint8Array(viewBuffer(value), viewOffset(value), viewLength(value));
  // These throw for everything else, where `new Uint8Array` would also take lists, lengths and nothing at all.
  try {
    bufferLength(value);
  } catch {
    sharedLength(value);
  }
  return new Uint8Array(value);
}

const ALLOWED = 'an ArrayBuffer, a SharedArrayBuffer or a view on one, neither detached nor out of bounds';

/** The bytes of `value` where they are. */
export function bytesOf(value, what) {
  try {
    return viewOn(value);
  } catch {
    // Without the platform's error, whose text may show what was given.
    throw invalid(`the ${what} must be ${ALLOWED}`);
  }
}

// Larger ones are measured before they are copied.
const LARGE = 1 << 20;

/** A copy of the bytes of `value`, which nobody else can reach. */
export function copyOf(core, value) {
  const bytes = bytesOf(value, 'value');
  if (arrayLength(bytes) > LARGE) core.call('check_length', 3, arrayLength(bytes));
  return duplicate(bytes);
}

/** A copy, or CAPACITY where memory ends. */
export function duplicate(bytes) {
  try {
    return new Uint8Array(bytes);
  } catch (cause) {
    if (cause instanceof RangeError) throw new AlkError('CAPACITY', 'there is no memory left to copy the bytes', { cause });
    throw invalid(`the value must be ${ALLOWED}`);
  }
}

// Without a prototype, which others may have added to.
const NO_OPTIONS = Object.freeze(Object.create(null));

/** The options of a call: none, or an object with only such names as the call knows. */
export function known(options, names, call) {
  if (options === undefined) return NO_OPTIONS;
  if (options === null || typeof options !== 'object') throw invalid(`${call}: the options must be an object, not ${kindOf(options)}`);
  for (const name in options) if (!names.includes(name)) throw unknown(name, call);
  return options;
}

export function unknown(name, call) {
  return invalid(`${call}: this version knows no option '${name}'`);
}

/** A duration as WebAssembly takes it: what is no number is NaN, and refused in its turn. */
export const duration = (ttl) => (typeof ttl === 'number' ? ttl : NaN);

export function instant(at, what) {
  if (typeof at === 'number' && at === at) return at;
  throw invalid(`${what} must be a number of milliseconds`);
}

export function revision(number, what) {
  if (Number.isSafeInteger(number) && number >= 1) return number;
  throw invalid(`${what} must be a whole number from 1 to 2^53 - 1`);
}

/** A revision, or 0 where it is left out. */
export const maybeRevision = (number, what) => (number === undefined ? 0 : revision(number, what));

/** A limit; left out, there is none. */
export function limit(number, what) {
  if (number === undefined) return Infinity;
  if (Number.isSafeInteger(number) && number >= 0) return number;
  throw invalid(`${what} must be a whole number, 0 or above`);
}

/** Whether the old deadline is to be kept. */
export function keeps(restage, call) {
  if (restage === undefined || restage === 'move') return false;
  if (restage === 'keep') return true;
  throw invalid(`${call}: restage must be 'move' or 'keep'`);
}

/** The items of an iterable, taken out before anything is done with them. */
export function items(iterable, what) {
  if (iterable !== null && typeof iterable === 'object' && typeof iterable[Symbol.iterator] === 'function') return [...iterable];
  throw invalid(`${what} must be an array or another iterable object, not ${kindOf(iterable)}`);
}

export function object(value, what) {
  if (value !== null && typeof value === 'object') return value;
  throw invalid(`${what} must be an object, not ${kindOf(value)}`);
}
