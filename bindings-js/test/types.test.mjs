// The types, as a user's compiler sees them.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import test from 'node:test';
import { ROOT, require } from './support.mjs';

const tsc = require.resolve('typescript/bin/tsc');
const file = fileURLToPath(new URL('types-under-test.ts', ROOT));

writeFileSync(file, `
import { open, openSync, AlkError, type Store, type LocalStore, type Lease, type LeaseHandle, type AlkErrorCode, type Op, type SweepReport, type WindowRow } from 'alkstore';
import * as slim from 'alkstore/slim';

export async function use(signal?: AbortSignal): Promise<Uint8Array | null> {
  const store: LocalStore = await open({ maxLocks: 5, clock: () => 5 });
  const lease: Lease | null = await store.tryLock('a', { ttl: 5, owner: 'o', renew: 'manual' });
  if (lease) {
    const at: number = lease.expiresAt;
    const owner: string = lease.owner;
    await lease.renew();
    lease.signal.addEventListener('abort', () => at);
    const handle: LeaseHandle = store.lease({ name: 'a', owner, token: lease.token });
    const maybe: number | undefined = handle.expiresAt;
    await handle.renew(maybe ?? 5);
    await store.entries.put('k', new Uint8Array(1), { guard: lease });
    // @ts-expect-error a rebuilt lease has no ttl of its own
    await handle.renew();
  }
  // @ts-expect-error there is no ttl
  await store.tryLock('a', {});
  // @ts-expect-error not in this version
  await store.tryLock('a', { ttl: 5, renew: 'auto' });
  // @ts-expect-error a duration is a number
  await store.tryLock('a', { ttl: '5' });
  // @ts-expect-error a value is bytes
  await store.entries.put('k', 'text');
  const put = await store.entries.put('k', new ArrayBuffer(1), { ifVersion: 5 });
  if (put.stored) {
    const version: number = put.version;
    void version;
  } else {
    const version: number | null = put.version;
    void version;
  }
  const ops: Op[] = [{ op: 'check', key: 'k', version: null }, { op: 'put', key: 'k', value: new DataView(new ArrayBuffer(1)) }];
  await store.atomic(ops);
  const answer: number = store.sync.tx((tx) => (tx.has('k') ? 1 : 2));
  void answer;
  const [claim] = await store.window.claim({ lease: 5 });
  if (claim?.reclaiming) {
    const [reclaimed] = await store.window.finish([claim], { epoch: (await store.window.beginSweep(5)) ?? 1 });
    const freed: number = reclaimed?.outcome === 'deleted' ? reclaimed.bytes : 0;
    // @ts-expect-error only what was deleted had bytes
    const never: number = reclaimed?.outcome === 'voided' ? reclaimed.bytes : freed;
    void never;
  }
  const rows: WindowRow[] = store.sync.window.list({ limit: 1 });
  if (rows[0]) await store.window.list({ after: rows[0] });
  const oldest: number | null = store.sync.window.stats().oldest;
  void oldest;
  const report: SweepReport = await store.sweep({
    liveness: async (keys) => keys.map((key) => key.length > 5),
    reclaim: (keys) => keys.map((key, index) => (index ? key.length : index ? null : new Error('mine'))),
    measure: (keys) => keys.map(() => null),
    limit: 5, dryRun: true, signal: new AbortController().signal, onProgress: ({ examined }) => void examined,
  });
  const cause: string = report.stop.reason === 'aborted' ? report.stop.cause : report.stop.reason;
  // @ts-expect-error only an aborted sweep has a cause
  void [cause, report.stop.cause];
  // @ts-expect-error a yes or no for each key
  await store.sweep({ liveness: () => true });
  // @ts-expect-error there is none without promises
  void store.sync.sweep;
  const far: Store = store;
  new Blob([await far.snapshot()]);
  try {
    store.sync.now();
  } catch (error) {
    if (error instanceof AlkError) {
      const code: AlkErrorCode = error.code;
      void code;
    }
  }
  await slim.open({ module: new URL('https://example.com/alkstore.wasm') });
  slim.openSync({ module: new WebAssembly.Module(new Uint8Array(8)) }).sync[Symbol.dispose]();
  // @ts-expect-error somebody must say where it is
  await slim.open();
  void signal;
  await store[Symbol.asyncDispose]();
  return openSync().sync.entries.get('k');
}

export async function disposing() {
  await using store = await open();
  await using lease = await store.tryLock('a', { ttl: 5 });
  using other = store.sync.tryLock('b', { ttl: 5 });
  void [lease, other];
}
`);

for (const [name, flags] of Object.entries({
  'plain lib.dom and ES2022': ['--lib', 'es2022,dom', '--module', 'nodenext'],
  'with esnext.disposable': ['--lib', 'es2022,dom,esnext.disposable', '--module', 'nodenext'],
  'everything of the newest': ['--lib', 'esnext,dom', '--module', 'nodenext'],
  'as a bundler resolves it': ['--lib', 'es2022,dom', '--module', 'esnext', '--moduleResolution', 'bundler'],
  'with the types of Node': ['--lib', 'es2022,dom', '--module', 'nodenext', '--types', 'node'],
  'a web worker': ['--lib', 'es2022,webworker', '--module', 'nodenext'],
})) {
  test(`types: ${name}`, () => {
    const types = flags.includes('--types') ? [] : ['--types', 'alkstore'];
    const args = [tsc, '--noEmit', '--strict', '--exactOptionalPropertyTypes', '--target', 'es2022', ...types, ...flags, file];
    const { stdout, status } = spawnSync(process.execPath, args, { encoding: 'utf8', cwd: fileURLToPath(ROOT) });
    assert.equal(`${stdout}${status}`, '0');
  });
}
