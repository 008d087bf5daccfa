// The entry for runtimes that compile no WebAssembly from bytes, but import it compiled: workerd.
import module from './alkstore.wasm';
import { compiled, opener } from './open.js';

export { AlkError } from './error.js';
const entry = /* @__PURE__ */ opener(/* @__PURE__ */ compiled(() => module));
export const open = (options) => entry.open(options);
export const openSync = (options) => entry.openSync(options);
