// The conformance list through the npm package: the very cases of `src/`, compiled to WebAssembly of their own, call
// the package's synchronous surface through the fixture below. Runs wherever the package does.
//
//   import * as alkstore from 'alkstore';
//   import * as list from './list.js';        // wasm-bindgen --target web
//   await list.default();
//   const { failed } = await conformance(alkstore, list, console.log);
//
// `list.js` is made from the library of this crate:
//
//   cargo build -p alkstore-tests --lib --target wasm32-unknown-unknown
//   wasm-bindgen --target web --out-dir DIR --out-name list target/wasm32-unknown-unknown/debug/alkstore_tests.wasm

/** Runs every case, and prints a line for each as Rust's test runner does. */
export async function conformance(alkstore, list, print) {
  let passed = 0;
  const failures = [];
  for (const name of list.cases()) {
    try {
      // A breath between the cases, in which the memory of the last one's stores can be reclaimed.
      await new Promise((next) => setTimeout(next));
      runCase(alkstore, list, name);
      passed += 1;
      print(`test npm::${name} ... ok`);
    } catch (broken) {
      failures.push(`---- npm::${name} ----\n${broken?.message ?? broken}\n${broken instanceof WebAssembly.RuntimeError ? broken.stack : ''}`);
      print(`test npm::${name} ... FAILED`);
    }
  }
  for (const failure of failures) print(failure);
  const failed = failures.length;
  print(`test result: ${failed === 0 && passed > 0 ? 'ok' : 'FAILED'}. ${passed} passed; ${failed} failed; 0 ignored`);
  return { passed, failed: passed === 0 ? 1 : failed };
}

/** Runs one case on stores of its own; throws what was broken. */
export function runCase(alkstore, list, name) {
  list.run(name, fixture(alkstore));
}

/** One fixture: stores on one clock that is moved by hand. Stores and leases are known to the cases by number. */
export function fixture({ openSync }) {
  let now = 0;
  const stores = [];
  const leases = [];
  const keep = (lease) => {
    const { name, owner, token, expiresAt } = lease;
    return { id: leases.push(lease) - 1, name, owner, token, expiresAt };
  };
  const operations = {
    setClock: (to) => void (now = to),
    open: (limits) => stores.push(openSync({ ...limits, clock: () => now }).sync) - 1,
    tryLock(store, name, options) {
      const lease = stores[store].tryLock(name, options);
      return lease && keep(lease);
    },
    lease: (store, parts) => keep(stores[store].lease(parts)),
    renew: (lease, ttl) => (leases[lease].renew(ttl) ? leases[lease].expiresAt : null),
    release: (lease) => leases[lease].release(),
    queryLocks(store, prefix, page) {
      const { held, pending } = stores[store].queryLocks(prefix, page);
      if (pending.length > 0) throw new Error('nothing can be pending');
      return held;
    },
  };
  for (const verb of ['lockInfo', 'forceRelease', 'atomic', 'purgeLapsed', 'snapshot', 'restore', 'now', 'close']) {
    operations[verb] = (store, ...args) => stores[store][verb](...args);
  }
  for (const verb of ['getEntry', 'put', 'putIfAbsent', 'touch', 'delete', 'list']) {
    operations[verb] = (store, ...args) => stores[store].entries[verb](...args);
  }
  for (const verb of [
    'stage', 'unstage', 'take', 'claim', 'settle', 'requeue', 'mark', 'finish', 'delete', 'judge', 'list', 'info', 'stats',
    'beginSweep', 'extendSweep', 'endSweep',
  ]) {
    operations[`window.${verb}`] = (store, ...args) => stores[store].window[verb](...args);
  }
  return { call: (operation, args) => operations[operation](...args) };
}
