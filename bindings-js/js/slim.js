// The entry without WebAssembly: the caller tells where it is.
import { opener } from './open.js';

export { AlkError } from './error.js';
export const { open, openSync } = /* @__PURE__ */ opener();
