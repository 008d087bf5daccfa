// The default entry: the WebAssembly is in the JavaScript.
import { bytes } from './inline.js';
import { fromBytes, opener } from './open.js';

export { AlkError } from './error.js';
const entry = /* @__PURE__ */ opener(/* @__PURE__ */ fromBytes(bytes));
export const open = (options) => entry.open(options);
export const openSync = (options) => entry.openSync(options);
