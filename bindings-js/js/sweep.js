// The sweep. WebAssembly works through a batch and tells what it waits for; that is waited for here.
import { AlkError, invalid, kindOf } from './error.js';
import { duration, known, limit } from './input.js';

const OPTIONS = [
  'liveness', 'reclaim', 'measure', 'windowDecides', 'dryRun', 'limit', 'batch', 'rate', 'timeLimit', 'hookTimeout', 'claimLease',
  'signal', 'onProgress',
];

// By the numbers of src/sweep.rs: the hooks, what they answer of a payload, and what is left of a report.
const HOOKS = ['liveness', 'reclaim', 'measure'];
const LIVENESS = 0;
const NOT_FOUND = -1;
const NOT_RECLAIMED = -2;
const COUNTS = [
  'examined', 'deleted', 'bytesFreed', 'alreadyAbsent', 'protectedByPin', 'protectedByLiveness', 'protectedByPublication', 'failed',
  'lostLease', 'requeued',
];
const STOPS = ['running', 'drained', 'limit', 'timeLimit', 'cancelled'];
const CAUSES = ['SWEEPER_LOCK', 'NO_LIVENESS_SOURCES', 'LIVENESS_FAILED', 'LOST_LEASE', 'ENGINE_FAILED'];

const SIGNAL = ['addEventListener', 'removeEventListener'];

// Longer timers fire at once.
const MAX_DELAY = 2 ** 31 - 1;

export async function sweep(core, options) {
  const given = read(options);
  core.call('check_open');
  if (core.sweep !== undefined) return reportOf(given.dryRun, () => 0, aborted('SWEEPER_LOCK'), null);
  return new Sweep(core, given).run();
}

/** A copy of the options, as WebAssembly takes them: what is not given is 0. */
function read(options) {
  const { liveness, reclaim, measure, windowDecides, dryRun, limit: atMost, batch, rate, timeLimit, hookTimeout, claimLease, signal, onProgress } =
    known(options, OPTIONS, 'sweep');
  for (const [name, hook] of Object.entries({ liveness, reclaim, measure, onProgress })) {
    if (hook !== undefined && typeof hook !== 'function') throw invalid(`sweep: ${name} must be a function, not ${kindOf(hook)}`);
  }
  if (measure !== undefined && reclaim === undefined) throw invalid('sweep: measure needs reclaim, whose work it foretells');
  if (signal !== undefined && (typeof signal?.aborted !== 'boolean' || !SIGNAL.every((name) => typeof signal[name] === 'function'))) {
    throw invalid(`sweep: signal must be an AbortSignal, not ${kindOf(signal)}`);
  }
  const given = {
    hooks: [liveness, reclaim, measure],
    signal,
    onProgress,
    windowDecides: flag(windowDecides, 'windowDecides'),
    dryRun: flag(dryRun, 'dryRun'),
    limit: limit(atMost, 'sweep: limit'),
    batch: positive(batch, 'batch'),
    rate: positive(rate, 'rate'),
    times: [timeLimit, hookTimeout, claimLease].map((time) => (time === undefined ? 0 : duration(time) || NaN)),
  };
  if (given.dryRun && reclaim !== undefined && measure === undefined) {
    throw invalid('sweep: a dry run with reclaim needs measure, which tells what would be freed');
  }
  return given;
}

function flag(value, name) {
  if (value === undefined || typeof value === 'boolean') return value === true;
  throw invalid(`sweep: ${name} must be a boolean, not ${kindOf(value)}`);
}

function positive(number, name) {
  if (number === undefined) return 0;
  if (Number.isSafeInteger(number) && number > 0) return number;
  throw invalid(`sweep: ${name} must be a whole number, 1 or above`);
}

const aborted = (cause) => ({ reason: 'aborted', cause });

function reportOf(dryRun, count, stop, error) {
  const counts = Object.fromEntries(COUNTS.map((name, index) => [name, count(index)]));
  const overdue = count(COUNTS.length);
  return { dryRun, ...counts, oldestOverdue: overdue > 0 || overdue === 0 && counts.examined > 0 ? overdue : null, stop, error };
}

class Sweep {
  constructor(core, given) {
    this.core = core;
    this.given = given;
    this.cancelled = false;
    this.told = 0;
  }

  async run() {
    const { core, given } = this;
    const { hooks, signal } = given;
    core.call(
      'sweep_start', hooks[0] !== undefined, hooks[1] !== undefined, given.windowDecides, given.dryRun, given.limit, given.batch, given.rate,
      ...given.times,
    );
    core.sweep = this;
    const cancel = () => this.cancel();
    try {
      signal?.addEventListener('abort', cancel);
      this.cancelled = signal?.aborted === true;
      for (let woken = false; ; ) {
        const keys = core.call('sweep_poll', core.now(), woken, this.cancelled);
        if (keys === true) return this.end();
        const [hook, delay] = [core.left(0), core.left(1)];
        if (keys === null) this.tell();
        woken = keys === null ? await this.sleep(delay) : await this.answer(hook, keys, delay);
      }
    } finally {
      core.sweep = undefined;
      core.drop();
      // Last: a signal need not be the platform's own, and may throw.
      signal?.removeEventListener('abort', cancel);
    }
  }

  /** Ends it soon: at once where it sleeps or asks what is live, but a payload's deletion is awaited. */
  cancel() {
    this.cancelled = true;
    this.interrupt?.();
  }

  /** Fails it, as when the store is closed. */
  fail(error) {
    this.refuse?.(error);
  }

  /** Waits for `work`, if any, but no longer than `delay`. Answers what came of it; nothing where time was over. */
  wait(delay, work, interrupt) {
    let timer;
    const waiting = new Promise((resolve, reject) => {
      this.interrupt = () => interrupt(resolve);
      this.refuse = reject;
      if (delay === delay) timer = setTimeout(resolve, Math.min(delay, MAX_DELAY));
      work?.().then(resolve, reject);
    });
    return waiting.finally(() => {
      clearTimeout(timer);
      this.interrupt = this.refuse = undefined;
    });
  }

  async sleep(delay) {
    if (this.cancelled) delay = 0;
    await this.wait(delay, undefined, (wake) => wake());
    return true;
  }

  /** Asks a hook and hands its answers over. Answers whether it took too long. */
  async answer(hook, keys, delay) {
    const { core } = this;
    const count = keys.length;
    const stop = (resolve) => {
      if (hook === LIVENESS) resolve({});
    };
    const came = await this.wait(delay, () => this.ask(hook, keys, count), stop);
    if (came === undefined) {
      this.cause = undefined;
      return true;
    }
    if ('cause' in came) this.cause = came.cause;
    const { numbers = hook === LIVENESS ? [] : new Array(count).fill(NOT_RECLAIMED) } = came;
    for (const number of numbers) core.call('sweep_answer', number);
    core.call('sweep_answered', came.numbers !== undefined || hook !== LIVENESS);
    return false;
  }

  async ask(hook, keys, count) {
    const name = HOOKS[hook];
    try {
      const answers = await this.given.hooks[hook](keys);
      if (!Array.isArray(answers) || answers.length !== count) {
        throw invalid(`sweep: ${name} must answer with an array of ${count}, one for each key`);
      }
      if (hook === LIVENESS) return { numbers: Array.from(answers, live) };
      const failed = {};
      const numbers = Array.from(answers, (answer) => freed(answer, name, failed));
      return { ...failed, numbers };
    } catch (cause) {
      return { cause };
    }
  }

  /** Tells of a batch. A long sleep comes in several parts, of which only the first follows one. */
  tell() {
    const { dryRun, onProgress } = this.given;
    if (onProgress === undefined || this.thrown !== undefined) return;
    const report = this.report(dryRun, null);
    if (report.examined === this.told) return;
    this.told = report.examined;
    try {
      onProgress(report);
    } catch (error) {
      this.thrown = { error };
      this.cancel();
    }
  }

  report(dryRun, error) {
    const { core } = this;
    const stop = core.left(COUNTS.length + 3);
    const reason = STOPS[stop];
    return reportOf(dryRun, (index) => core.left(index + 2), reason === undefined ? aborted(CAUSES[stop - STOPS.length]) : { reason }, error);
  }

  end() {
    const { core, given } = this;
    if (this.thrown !== undefined) throw this.thrown.error;
    const report = this.report(given.dryRun, null);
    if (core.left(0) === 0) return report;
    const error = core.error();
    // What a hook threw stands behind WebAssembly's word for it. The engine's own failures have other codes or this cause.
    if (this.cause === undefined || error.code !== 'DATABASE' || report.stop.cause === 'ENGINE_FAILED') return { ...report, error };
    return { ...report, error: new AlkError(error.code, error.message, { cause: this.cause }) };
  }
}

function live(answer) {
  if (typeof answer !== 'boolean') throw invalid(`sweep: liveness must answer true or false for each key, not ${kindOf(answer)}`);
  return answer ? 1 : 0;
}

function freed(answer, name, failed) {
  if (answer === null) return NOT_FOUND;
  if (Number.isSafeInteger(answer) && answer >= 0) return answer;
  failed.cause = answer instanceof Error ? answer : invalid(`sweep: ${name} must answer the bytes, null or an Error for each key, not ${kindOf(answer)}`);
  return NOT_RECLAIMED;
}
