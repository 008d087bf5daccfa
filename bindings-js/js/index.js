// The default entry: the WebAssembly is in the JavaScript.
import { bytes } from './inline.js';
import { fromBytes, opener } from './open.js';

export { AlkError } from './error.js';
export const { open, openSync } = /* @__PURE__ */ opener(/* @__PURE__ */ fromBytes(bytes));
