// The entry without WebAssembly: the caller tells where it is.
import { opener } from './open.js';

export { AlkError } from './error.js';
const entry = /* @__PURE__ */ opener();
export const open = (options) => entry.open(options);
export const openSync = (options) => entry.openSync(options);
