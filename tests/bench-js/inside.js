// Locks by handle: what the package does inside for a name that it has met before, without the lookup of the name, the
// lease object and the checks around it. No user can call it; the goal for it is a goal for the engine's part.
import { Core, NAME, NONE } from '../../bindings-js/dist/package/core.js';
import { bytes } from '../../bindings-js/dist/package/inline.js';

const TTL = 30_000;

/** The names' handles, and a pair of acquire and release on one. */
export function inside(names) {
  const none = Infinity;
  const core = new Core(new WebAssembly.Module(bytes()), { maxLocks: none, maxEntries: none, maxBytes: none });
  const { wasm } = core;
  const list = names.map((name) => {
    const token = core.call('try_lock', core.write(name, NAME, 0), NONE, TTL, core.now());
    const handle = { slot: core.left(1), generation: core.left(2) };
    // The handle outlives the lease, until another name gets its place.
    core.call('release_by', handle.slot, handle.generation, token);
    return handle;
  });
  return {
    list,
    pair({ slot, generation }) {
      const token = wasm.try_lock_by(slot, generation, NONE, TTL, core.clock());
      return wasm.release_by(slot, generation, token);
    },
    close: () => core.close(),
  };
}
