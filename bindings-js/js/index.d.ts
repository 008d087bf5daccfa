/**
 * alkstore: named locks with a time to live, versioned entries, transactions and a garbage-collection window, in the
 * memory of this process, tab or worker.
 *
 * Every instant is a number of milliseconds since 1970, every duration a number of milliseconds; fractions are kept
 * to the nanosecond. A duration must be above zero and at most 100 years. Revisions (lock tokens, entry versions,
 * claim ids) are whole numbers from 1 to 2^53 - 1 that a store never gives twice.
 *
 * Whatever is wrong with a call is an {@link AlkError}; losing is a value, never an error.
 */

/** Milliseconds: an instant since 1970, or a duration. */
export type Ms = number;

/** An entry key: 1 to 1024 bytes. A string stands for its UTF-8 and may not hold a lone surrogate. */
export type Key = string | Uint8Array;

/** The bytes of a value: 0 to 64 MiB. They are copied once, when the call is made. */
export type Bytes = ArrayBufferLike | ArrayBufferView;

/** Bytes that are the caller's own. */
export type OwnBytes = ReturnType<Uint8ArrayConstructor['from']>;

/** A `WebAssembly.Module`, where the types of the platform are there to say so. */
export type WasmModule = typeof globalThis extends { WebAssembly: { Module: { prototype: infer Module } } } ? Module : object;

export type AlkErrorCode =
  /** A lock name or an owner: empty, above 512 bytes of UTF-8, white space alone, with U+0000 or a lone surrogate. */
  | 'INVALID_NAME'
  /** A lock name that begins with `__alkstore_`. */
  | 'RESERVED_NAME'
  /** An argument of a wrong type or size, or an option that this version does not know. */
  | 'INVALID_ARGUMENT'
  /** A duration that is no number, not above zero, or above 100 years. */
  | 'INVALID_DURATION'
  /** Somebody else's write came between: nothing was applied; read again and retry. */
  | 'CONFLICT'
  /** The lease is no longer live: nothing was written. Also the reason of an aborted {@link LeaseHandle.signal}. */
  | 'LEASE_LOST'
  /** The store is at its limit, also after lapsed rows were purged, or memory ran out while input was copied in. */
  | 'CAPACITY'
  /** Everything else; the detail is in `cause`. */
  | 'DATABASE'
  /** The store was closed. */
  | 'CLOSED'
  /** The store's WebAssembly stopped in the middle of an operation. It is never used again: open a new store. */
  | 'POISONED'
  /** The bytes are not a whole snapshot. The store is unchanged. */
  | 'SNAPSHOT'
  /** A newer version wrote the snapshot. The store is unchanged. */
  | 'VERSION'
  | 'DISCONNECTED'
  | 'ABORTED';

/** The one error class. `message` tells what to do, `cause` why, where there is more to know. */
export class AlkError extends Error {
  constructor(code: AlkErrorCode, message: string, details?: { cause?: unknown; retryable?: boolean; outcomeUnknown?: boolean; owner?: string });
  readonly name: 'AlkError';
  readonly code: AlkErrorCode;
  /** Whether the same call may succeed when it is simply repeated. */
  readonly retryable: boolean;
  /** Whether the call may have taken effect all the same. */
  readonly outcomeUnknown: boolean;
  /** The owner of an acquire whose outcome is unknown: asking again with it settles the matter. */
  readonly owner: string | undefined;
  readonly cause: unknown;
}

export interface OpenOptions {
  /**
   * The WebAssembly to use instead of the one inside the package: compiled, as bytes, or where to fetch it. It is what
   * `alkstore/alkstore.wasm` holds, of this very version.
   */
  module?: WasmModule | ArrayBufferLike | ArrayBufferView | URL;
  /** The store's clock, read once an operation. By default the time of day, carried on where it is set back. */
  clock?: () => Ms;
  /** The most lock rows, lapsed ones included. Without it, no limit but memory. */
  maxLocks?: number;
  /** The most entry rows, lapsed ones included. */
  maxEntries?: number;
  /** The most bytes of lock names, owners, keys and values together. */
  maxBytes?: number;
}

/** Opens a new, empty store. Two stores share nothing. */
export function open(options?: OpenOptions): Promise<LocalStore>;

/** The same without a promise. The WebAssembly is compiled on this thread, once; a `URL` is refused. */
export function openSync(options?: Omit<OpenOptions, 'module'> & { module?: WasmModule | ArrayBufferLike | ArrayBufferView }): LocalStore;

// Locks

export interface LockOptions {
  /** From now until the lease lapses by itself. */
  ttl: Ms;
  /**
   * Who asks: 1 to 512 bytes of UTF-8. By default a fresh one for each call, so that two calls contend. The owner of a
   * live lease gets that very lease again, nothing refreshed: give one to make retries safe.
   */
  owner?: string;
  /** Only `'manual'` yet: whoever holds the lease renews it. */
  renew?: 'manual';
}

/** What a lease consists of: enough to rebuild it elsewhere. */
export interface LeaseParts {
  readonly name: string;
  readonly owner: string;
  /** The fencing token: of two grants of a name the later has the higher. */
  readonly token: number;
}

interface LeaseState extends LeaseParts {
  /** The deadline that the store last told this handle; `undefined` for a rebuilt lease that has not renewed yet. */
  readonly expiresAt: Ms | undefined;
  /**
   * Aborts when the lease is lost, at its deadline at the latest, with an {@link AlkError} of code `LEASE_LOST`. It
   * does not abort when this handle releases. Nothing is watched before it is first read. Timers run late where a tab
   * is frozen or a machine sleeps, so it is a help, not a fence: what must not be overwritten is guarded by the token.
   */
  readonly signal: AbortSignal;
  /** The parts, for `JSON.stringify` and for messages: `structuredClone` and `{ ...lease }` leave the owner out. */
  toJSON(): LeaseParts;
}

/** A lease that was rebuilt from its parts. The store is asked by each call, nothing is remembered. */
export interface LeaseHandle extends LeaseState, AsyncDisposable {
  /** Moves the deadline to `ttl` from now, shorter or longer; false where the grant has lapsed or is gone. */
  renew(ttl: Ms): Promise<boolean>;
  /** Frees the grant; false where it was gone. A newer grant of the name is never touched. */
  release(): Promise<boolean>;
  /** Releases; does not fail where the store is closed. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** A lease as it was granted. Forgetting it does nothing: it lapses at its deadline. */
export interface Lease extends LeaseHandle {
  readonly expiresAt: Ms;
  /** Moves the deadline to `ttl` from now, by default the one it was last given. */
  renew(ttl?: Ms): Promise<boolean>;
}

export interface SyncLeaseHandle extends LeaseState, Disposable {
  renew(ttl: Ms): boolean;
  release(): boolean;
  [Symbol.dispose](): void;
}

export interface SyncLease extends SyncLeaseHandle {
  readonly expiresAt: Ms;
  renew(ttl?: Ms): boolean;
}

export interface LockInfo extends LeaseParts {
  readonly expiresAt: Ms;
  /** Whether it had lapsed at the instant of the answer: then anybody may take the lock. */
  readonly lapsed: boolean;
}

// Entries

export interface Guard {
  /** The lock's name. */
  readonly name: string;
  /** The grant that must be live at the instant of the write. */
  readonly token: number;
}

export interface CreateOptions {
  /** From now until the entry lapses; for ever where it is left out. */
  ttl?: Ms;
  /** A fenced write: it happens only while this grant is live, else `LEASE_LOST`. A lease will do. */
  guard?: Guard;
}

export interface PutOptions extends CreateOptions {
  /** Compare and swap: only over this version. */
  ifVersion?: number;
}

export type PutResult =
  | { readonly stored: true; readonly version: number }
  /** Nothing changed; `version` is the one that stands in the way, `null` where there is no entry. */
  | { readonly stored: false; readonly version: number | null };

export interface Entry {
  /** A copy: yours to change. */
  readonly value: OwnBytes;
  readonly version: number;
  /** When it lapses; `null` for never. */
  readonly expiresAt: Ms | null;
}

/** The entry that won, whoever wrote it. */
export interface Winner extends Entry {
  /** Whether it is the one that this call wrote. */
  readonly stored: boolean;
}

export interface EntryMeta {
  readonly key: OwnBytes;
  readonly version: number;
  readonly expiresAt: Ms | null;
  /** Of the value, in bytes. */
  readonly size: number;
}

export interface PageOptions<K> {
  /** Only what comes after this one, in bytewise order. */
  after?: K;
  /** At most so many; everything where it is left out. */
  limit?: number;
}

/** A lapsed entry is absent to every call. */
export interface Entries {
  /** A copy of the value, or `null`. */
  get(key: Key): Promise<OwnBytes | null>;
  getEntry(key: Key): Promise<Entry | null>;
  has(key: Key): Promise<boolean>;
  /** Writes over what is there, or with `ifVersion` only over that version. */
  put(key: Key, value: Bytes, options?: PutOptions): Promise<PutResult>;
  /** The first writer wins. Also takes the key out of the window in the same step, stored or not. */
  putIfAbsent(key: Key, value: Bytes, options?: CreateOptions): Promise<Winner>;
  /** Moves the deadline of a live entry to `ttl` from now; its version stays. False where there is none. */
  touch(key: Key, ttl: Ms): Promise<boolean>;
  /** False where there was none, or not of that version. */
  delete(key: Key, options?: { ifVersion?: number }): Promise<boolean>;
  /** One consistent page of keys in bytewise order, without their values. */
  list(prefix?: Key, options?: PageOptions<Key>): Promise<EntryMeta[]>;
}

export interface SyncEntries {
  get(key: Key): OwnBytes | null;
  getEntry(key: Key): Entry | null;
  has(key: Key): boolean;
  put(key: Key, value: Bytes, options?: PutOptions): PutResult;
  putIfAbsent(key: Key, value: Bytes, options?: CreateOptions): Winner;
  touch(key: Key, ttl: Ms): boolean;
  delete(key: Key, options?: { ifVersion?: number }): boolean;
  list(prefix?: Key, options?: PageOptions<Key>): EntryMeta[];
}

// Transactions

/** One part of a changeset. A key may be written once, checked for one thing, and staged once. */
export type Op =
  /** The lease must be live at the commit, else `LEASE_LOST`. */
  | { op: 'guard'; name: string; token: number }
  /** The entry must have this version, or with `null` be absent, else `CONFLICT`. */
  | { op: 'check'; key: Key; version: number | null }
  /** Writes over what is there; `ifVersion` adds the check. */
  | { op: 'put'; key: Key; value: Bytes; ttl?: Ms; ifVersion?: number }
  /** Adds the check that the key is absent, and takes it out of the window. */
  | { op: 'putIfAbsent'; key: Key; value: Bytes; ttl?: Ms }
  | { op: 'delete'; key: Key }
  | { op: 'stage'; key: Key; visibleAfter: Ms; restage?: 'move' | 'keep' }
  | { op: 'unstage'; key: Key };

export interface Commit {
  /** The versions of the entries that were written, in bytewise order of their keys. */
  readonly versions: readonly { readonly key: OwnBytes; readonly version: number }[];
}

export interface TxEntry {
  readonly value: OwnBytes;
  /** `null` for what this transaction itself wrote: it gets its version at the commit. */
  readonly version: number | null;
}

export type TxPutResult = { readonly staged: true } | { readonly staged: false; readonly version: number | null };

/** A transaction while its function runs. Reads see its own writes; nobody else sees them before the commit. */
export interface Tx {
  get(key: Key): OwnBytes | null;
  getEntry(key: Key): TxEntry | null;
  has(key: Key): boolean;
  put(key: Key, value: Bytes, options?: { ttl?: Ms; ifVersion?: number }): TxPutResult;
  putIfAbsent(key: Key, value: Bytes, options?: { ttl?: Ms }): TxPutResult;
  delete(key: Key): boolean;
  stage(key: Key, visibleAfter: Ms, options?: { restage?: 'move' | 'keep' }): void;
  unstage(key: Key): void;
  /** Commit only if this grant is live then. A lease will do. */
  guard(guard: Guard): void;
}

// The garbage-collection window

export interface Candidate {
  readonly key: Key;
  /** Not before this instant; at this very instant it is due. */
  readonly visibleAfter: Ms;
}

export interface DueCandidate extends Candidate {
  readonly key: OwnBytes;
}

export interface Claim extends DueCandidate {
  readonly id: number;
  /** When the claim lapses, by the store's clock. */
  readonly until: Ms;
  /** Whether an earlier sweep began to delete what the key stands for and did not finish. */
  readonly reclaiming: boolean;
  /** How often the key was put back since it was staged. */
  readonly requeues: number;
}

/** What a claim is known by. */
export type ClaimRef = { readonly key: Key; readonly id: number };

/** What became of a claim, or would become of a key, when it came to deleting. */
export type Reclaim =
  /** The key and its entry are gone; `bytes` is the length of the entry's value. */
  | { readonly outcome: 'deleted'; readonly bytes: number }
  /** The key is gone from the window; there was no live entry. */
  | { readonly outcome: 'absent' }
  /** The key is marked: no put of it succeeds until its deletion is finished. */
  | { readonly outcome: 'marked' }
  /** Nothing happened: the key was not marked before. */
  | { readonly outcome: 'unmarked' }
  /** Nothing happened: the key was published, moved or unstaged since it was claimed. */
  | { readonly outcome: 'voided' }
  /** Nothing happened: the claim had lapsed. */
  | { readonly outcome: 'lapsed' };

export interface ReclaimOptions {
  /** Of a sweep that must still be the current one, else `LEASE_LOST`. */
  epoch?: number;
}

/** A key in the window. */
export interface WindowRow extends DueCandidate {
  /** When the last claim on it lapses, or lapsed; `null` where it is not claimed. */
  readonly claimedUntil: Ms | null;
  /** Whether what the key stands for is being deleted. */
  readonly reclaiming: boolean;
  /** How often it was put back since it was staged. */
  readonly requeues: number;
}

export interface WindowStats {
  readonly rows: number;
  /** Those that are due, claimed or not. */
  readonly due: number;
  /** Those under a live claim. */
  readonly claimed: number;
  /** Those that are marked. */
  readonly reclaiming: number;
  /** Those that were put back at least once. */
  readonly requeued: number;
  /** When the oldest became, or becomes, due; `null` where there is none. */
  readonly oldest: Ms | null;
}

/**
 * Keys that wait for an instant before anything may delete them. `sweep` of the store does the whole work; these are its
 * parts, for sweeps of one's own.
 *
 * Where a key stands for something outside the store, that must go before the entry does: `mark` the claims, delete what
 * they stand for, `finish` them. From the mark on, every put of the key fails with `CONFLICT`, retryable, until the entry
 * is gone. A marked key is not taken, unstaged, moved or settled; when its claim lapses it is claimed again.
 */
export interface GcWindow {
  /** Adds candidates. A key that waits for another instant moves (and loses its claim), or with `'keep'` stays. */
  stage(candidates: Iterable<Candidate>, options?: { restage?: 'move' | 'keep' }): Promise<void>;
  /** Takes keys out, claimed or not; how many were there. */
  unstage(keys: Iterable<Key>): Promise<number>;
  /** Removes and returns what is due at `now` (the store's clock by default) and under no live claim, oldest first. */
  take(options?: { now?: Ms; limit?: number }): Promise<DueCandidate[]>;
  /** The same without removing it: until `lease` from now nobody else gets it. */
  claim(options: { now?: Ms; lease: Ms; limit?: number }): Promise<Claim[]>;
  /** Removes the keys of claims that still stand and are not marked; how many. */
  settle(claims: Iterable<ClaimRef>): Promise<number>;
  /** Puts the keys of claims that still stand back, due at `visibleAfter`; how many. */
  requeue(claims: Iterable<ClaimRef>, options: { visibleAfter: Ms }): Promise<number>;
  /** Begins the deletion of what claimed keys stand for; for each, in order, `marked` (also where it was already) or why not. */
  mark(claims: Iterable<ClaimRef>, options?: ReclaimOptions): Promise<Reclaim[]>;
  /** Deletes the entries of marked claims, once what they stood for is gone: `deleted` or `absent`, or why not. */
  finish(claims: Iterable<ClaimRef>, options?: ReclaimOptions): Promise<Reclaim[]>;
  /** Marks and finishes in one step, for keys that stand for nothing outside. What is `marked` already is left alone. */
  delete(claims: Iterable<ClaimRef>, options?: ReclaimOptions): Promise<Reclaim[]>;
  /** What deleting these keys now would meet, `deleted` or `absent`; nothing is changed. */
  judge(keys: Iterable<Key>): Promise<Reclaim[]>;
  /** The keys as they become due, claimed or not; those after a row that was given before. */
  list(options?: PageOptions<Pick<WindowRow, 'key' | 'visibleAfter'>>): Promise<WindowRow[]>;
  /** The row of a key, or `null` where it is not in the window. */
  info(key: Key): Promise<WindowRow | null>;
  /** What is due is counted at `now`, the store's clock by default. */
  stats(options?: { now?: Ms }): Promise<WindowStats>;
  /** Becomes the one sweep of the store until `ttl` from now: its epoch, or `null` where another sweep is under way. */
  beginSweep(ttl: Ms): Promise<number | null>;
  /** Goes on until `ttl` from now; false where it is no longer the current sweep. */
  extendSweep(epoch: number, ttl: Ms): Promise<boolean>;
  /** Ends the sweep; false where it was no longer the current one. */
  endSweep(epoch: number): Promise<boolean>;
}

export interface SyncGcWindow {
  stage(candidates: Iterable<Candidate>, options?: { restage?: 'move' | 'keep' }): void;
  unstage(keys: Iterable<Key>): number;
  take(options?: { now?: Ms; limit?: number }): DueCandidate[];
  claim(options: { now?: Ms; lease: Ms; limit?: number }): Claim[];
  settle(claims: Iterable<ClaimRef>): number;
  requeue(claims: Iterable<ClaimRef>, options: { visibleAfter: Ms }): number;
  mark(claims: Iterable<ClaimRef>, options?: ReclaimOptions): Reclaim[];
  finish(claims: Iterable<ClaimRef>, options?: ReclaimOptions): Reclaim[];
  delete(claims: Iterable<ClaimRef>, options?: ReclaimOptions): Reclaim[];
  judge(keys: Iterable<Key>): Reclaim[];
  list(options?: PageOptions<Pick<WindowRow, 'key' | 'visibleAfter'>>): WindowRow[];
  info(key: Key): WindowRow | null;
  stats(options?: { now?: Ms }): WindowStats;
  beginSweep(ttl: Ms): number | null;
  extendSweep(epoch: number, ttl: Ms): boolean;
  endSweep(epoch: number): boolean;
}

// Sweeping

/** What became of a payload: the bytes that were freed, `null` where it was gone already, or why it could not be deleted. */
export type Reclaimed = number | null | Error;

export interface SweepOptions {
  /**
   * Which of the keys are still referred to: one answer for each, in order; `true` protects. Throwing, rejecting, an answer
   * of another shape and taking too long protect all of them and end the sweep with `LIVENESS_FAILED`. It may use the
   * store.
   */
  liveness?: (keys: OwnBytes[]) => readonly boolean[] | PromiseLike<readonly boolean[]>;
  /**
   * Nobody need be asked: what was staged, is due and was not published since is garbage. Without this, and without
   * `liveness`, nothing is deleted.
   */
  windowDecides?: boolean;
  /**
   * Deletes what the keys stand for outside the store, before their entries go; meanwhile every put of them is a
   * `CONFLICT`. One answer for each key, in order. A payload that could not be deleted is tried again later, after 1 s and
   * then twice as long each time, up to 15 min.
   */
  reclaim?: (keys: OwnBytes[]) => readonly Reclaimed[] | PromiseLike<readonly Reclaimed[]>;
  /** What `reclaim` would answer, with nothing deleted: a dry run needs it where there is `reclaim`. */
  measure?: (keys: OwnBytes[]) => readonly Reclaimed[] | PromiseLike<readonly Reclaimed[]>;
  /** Changes nothing, and reports what a sweep would do now. */
  dryRun?: boolean;
  /** Examines at most so many candidates. */
  limit?: number;
  /** How many candidates are worked on at once: 1,000 by default, or 64 with `reclaim`; 10,000 at most. */
  batch?: number;
  /** Examines at most so many candidates a second, on average. */
  rate?: number;
  /** Begins no batch later than this after the start, by the store's clock. */
  timeLimit?: Ms;
  /**
   * How long a function above may take for one call; shorter than `claimLease`. Without it there is no such limit, and one
   * that never answers keeps this sweep, and later ones of the store, from going on.
   */
  hookTimeout?: Ms;
  /** For how long candidates are claimed, and for how long a sweep that vanished keeps others away: 60,000 by default. */
  claimLease?: Ms;
  /** Ends the sweep soon. A question is withdrawn, but a payload's deletion is awaited. */
  signal?: AbortSignal;
  /** Called after each batch. Where it throws, the sweep ends, and rejects with that. */
  onProgress?: (soFar: SweepReport) => void;
}

export type SweepStop =
  /** Nothing that was due when it began was left; or a limit was reached; or `signal` aborted. `running` is for `onProgress`. */
  | { readonly reason: 'running' | 'drained' | 'limit' | 'timeLimit' | 'cancelled' }
  | {
      readonly reason: 'aborted';
      /**
       * Another sweep is under way; neither `liveness` nor `windowDecides` was given; `liveness` failed; it stalled and is
       * no longer the current sweep; the store failed.
       */
      readonly cause: 'SWEEPER_LOCK' | 'NO_LIVENESS_SOURCES' | 'LIVENESS_FAILED' | 'LOST_LEASE' | 'ENGINE_FAILED';
    };

/** What a sweep did or, of a dry run, would have done. */
export interface SweepReport {
  readonly dryRun: boolean;
  /** Candidates that were looked at; each is in exactly one of the following, from `deleted` to `lostLease`. */
  readonly examined: number;
  readonly deleted: number;
  /** The bytes of the deleted values; with `reclaim`, what it says that it freed. */
  readonly bytesFreed: number;
  /** Candidates without a live entry. */
  readonly alreadyAbsent: number;
  /** Always 0: a store in memory has no pins. */
  readonly protectedByPin: number;
  /** Candidates that are referred to: they left the window. */
  readonly protectedByLiveness: number;
  /** Candidates that were published, moved or unstaged while they were in hand. */
  readonly protectedByPublication: number;
  /** Candidates whose payload could not be deleted: they were put back. */
  readonly failed: number;
  /** Candidates whose claim lapsed while they were in hand. */
  readonly lostLease: number;
  /** How many of the examined were put back for later. */
  readonly requeued: number;
  /** How long the oldest candidate had been due when the sweep began; `null` where none was. */
  readonly oldestOverdue: Ms | null;
  readonly stop: SweepStop;
  /** What failed last, if anything did; what a function of yours threw is its `cause`. */
  readonly error: AlkError | null;
}

// Stores

export interface Stats {
  /** Lock rows, lapsed ones included. */
  readonly locks: number;
  /** Entry rows, lapsed ones included. */
  readonly entries: number;
  /** Keys in the window. */
  readonly window: number;
  /** Bytes of names, owners, keys and values. */
  readonly bytes: number;
  /** The last revision that was given; 0 where none was. */
  readonly revision: number;
  /** Bytes of WebAssembly memory. It never shrinks; values lie outside it. */
  readonly wasmBytes: number;
}

export interface LockQuery {
  /** Every row, lapsed ones included, in bytewise order of the names. */
  readonly held: LockInfo[];
  /** Who waits: nobody yet, since nothing waits in this version. */
  readonly pending: LockInfo[];
}

/** Every call is checked in the same order: names and keys, owner or value, duration, closed store, then the work. */
export interface Store extends AsyncDisposable {
  /** Takes the lock, or answers `null` where another owner's lease is live. */
  tryLock(name: string, options: LockOptions): Promise<Lease | null>;
  /** A lease rebuilt from its parts, to renew or release what another place took. */
  lease(parts: LeaseParts): LeaseHandle;
  /** Who holds the lock, or held it last where its lapsed row is still there. */
  lockInfo(name: string): Promise<LockInfo | null>;
  queryLocks(prefix?: string, options?: PageOptions<string>): Promise<LockQuery>;
  /** Frees exactly this grant, whoever holds it; false where it is not there. */
  forceRelease(name: string, options: { token: number }): Promise<boolean>;
  readonly entries: Entries;
  /** Applies all of it at one instant, or nothing. Guards are judged first, then checks. */
  atomic(ops: Iterable<Op>): Promise<Commit>;
  readonly window: GcWindow;
  /**
   * Deletes what is due in the window and not live, in batches, and lets others have their turn between them. One sweep of
   * a store runs at a time; another ends with `SWEEPER_LOCK`. The answer is a report, also where it ended early.
   */
  sweep(options?: SweepOptions): Promise<SweepReport>;
  /** Deletes up to `limit` lapsed rows of locks and entries; how many. Nothing needs it: they only take room. */
  purgeLapsed(options?: { limit?: number }): Promise<number>;
  /** Everything in the store, as bytes: versioned and checksummed, deadlines absolute. */
  snapshot(): Promise<OwnBytes>;
  /**
   * Becomes what a snapshot holds; what was there before is gone. Refused bytes change nothing. Later revisions are
   * above all that either side has given.
   */
  restore(snapshot: Bytes): Promise<void>;
  stats(): Promise<Stats>;
  /** The store's clock, by which deadlines are judged. */
  now(): Promise<Ms>;
  /** Closes the store; twice is fine. Every later call fails with `CLOSED`, those of its leases too. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface LocalStore extends Store {
  /** The same store without promises. */
  readonly sync: SyncStore;
}

export interface SyncStore extends Disposable {
  tryLock(name: string, options: LockOptions): SyncLease | null;
  lease(parts: LeaseParts): SyncLeaseHandle;
  lockInfo(name: string): LockInfo | null;
  queryLocks(prefix?: string, options?: PageOptions<string>): LockQuery;
  forceRelease(name: string, options: { token: number }): boolean;
  readonly entries: SyncEntries;
  atomic(ops: Iterable<Op>): Commit;
  /**
   * Runs `fn` and commits what it did, all or nothing; its result is the answer. Where it throws, nothing is
   * committed. `CONFLICT` means that something it had read was changed before the commit: call again. `fn` must not be
   * async.
   */
  tx<T>(fn: (tx: Tx) => T): T;
  readonly window: SyncGcWindow;
  purgeLapsed(options?: { limit?: number }): number;
  snapshot(): OwnBytes;
  restore(snapshot: Bytes): void;
  stats(): Stats;
  now(): Ms;
  close(): void;
  [Symbol.dispose](): void;
}

// For `await using` and `using`: the same declarations as in TypeScript's own lib.esnext.disposable, for those who
// compile without it.
declare global {
  interface SymbolConstructor {
    readonly dispose: unique symbol;
    readonly asyncDispose: unique symbol;
  }
  interface Disposable {
    [Symbol.dispose](): void;
  }
  interface AsyncDisposable {
    [Symbol.asyncDispose](): PromiseLike<void>;
  }
}
