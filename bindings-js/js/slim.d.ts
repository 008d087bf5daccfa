/** alkstore without its WebAssembly inside: `open` is told where it is. Everything else is as in `alkstore`. */
import type { LocalStore, OpenOptions, WasmModule } from './index.js';

export * from './index.js';

/** What `alkstore/alkstore.wasm` holds, of this very version: compiled, as bytes, or where to fetch it. */
export interface SlimOptions extends OpenOptions {
  module: NonNullable<OpenOptions['module']>;
}

export function open(options: SlimOptions): Promise<LocalStore>;

export function openSync(options: SlimOptions & { module: WasmModule | ArrayBufferLike | ArrayBufferView }): LocalStore;
