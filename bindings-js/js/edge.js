// The same as workerd.js for edge runtimes, whose bundlers want to be told that the import is a compiled module.
import module from './alkstore.wasm?module';
import { compiled, opener } from './open.js';

export { AlkError } from './error.js';
const entry = /* @__PURE__ */ opener(/* @__PURE__ */ compiled(() => module));
export const open = (options) => entry.open(options);
export const openSync = (options) => entry.openSync(options);
