// How every benchmark here measures, as in ../bench-native/measure: contenders take turns, round after round, so that
// whatever else the machine does meets all of them; each round gives one ratio to each peer; the median of those is
// the figure.

/** The rows of one runtime. */
export class Table {
  constructor(engine, full, say) {
    this.engine = engine;
    this.full = full;
    this.say = say;
    this.rows = [];
  }

  /**
   * Measures the first contender against each of the others. A contender is `{ name, work, prepare? }`: `work(n)` does
   * the job n times and answers how often it succeeded, at once or by a promise; `prepare(n)` comes before it, untimed.
   * `goals` name peers and the least ratio of rates. The first contender's median time for one job is the answer.
   */
  async race(job, contenders, goals = {}) {
    this.say(`${job} ...`);
    const [rounds, slice] = this.full ? [31, 60] : [11, 20];
    const sizes = [];
    for (const contender of contenders) sizes.push(await calibrate(contender, slice));
    const times = contenders.map(() => []);
    for (let round = -2; round < rounds; round++) {
      // Each round begins with another one, so that nobody always pays for the garbage of the same neighbour.
      for (let turn = 0; turn < contenders.length; turn++) {
        const at = (turn + round + 2) % contenders.length;
        const took = await time(contenders[at], sizes[at]);
        // The first two rounds warm up: by then the compiler has seen all of it.
        if (round >= 0) times[at].push(took / sizes[at]);
      }
    }
    const own = median(times[0]);
    for (let at = 1; at < contenders.length; at++) {
      const peer = contenders[at].name;
      const ratio = median(times[at].map((theirs, round) => theirs / times[0][round]));
      const note = `${human(own)} against ${human(median(times[at]))}`;
      this.rows.push({ job, engine: this.engine, peer, ratio, goal: goals[peer] ?? null, lower: false, note });
    }
    return own;
  }

  /** Adds a figure that is no race, where smaller is better. */
  figure(job, peer, ratio, goal, note) {
    this.rows.push({ job, engine: this.engine, peer, ratio, goal, lower: true, note });
  }
}

async function time({ name, work, prepare }, n) {
  prepare?.(n);
  // A turn of the event loop, in which timers that are due run and clocks that are kept for a while are read anew.
  await new Promise((resolve) => setTimeout(resolve, 1));
  const start = performance.now();
  let done = work(n);
  if (typeof done !== 'number') done = await done;
  const took = performance.now() - start;
  if (done !== n) throw new Error(`${name} did ${done} of ${n}`);
  return took;
}

/** How often the job fits into `slice` milliseconds. */
async function calibrate(contender, slice) {
  for (let n = 16; ; n *= 4) {
    const took = await time(contender, n);
    if (took * 4 > slice) return Math.max(Math.round((n * slice) / took), 1);
  }
}

export function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

/** Milliseconds for one job, as a person reads them. */
export function human(millis) {
  if (millis < 1e-3) return `${(millis * 1e6).toFixed(0)} ns`;
  if (millis < 1) return `${(millis * 1e3).toFixed(1)} us`;
  return `${millis.toFixed(2)} ms`;
}
