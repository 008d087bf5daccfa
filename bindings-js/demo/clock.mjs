// A clock that moves only when everybody waits for it: a lease of seconds lapses without anybody sleeping.

/** Runs async tasks on a time of its own. Reading files takes none of it; `sleep` does. */
export class StoryClock {
  #awake = 0;
  #sleepers = [];

  constructor(start = Date.now()) {
    this.start = start;
    this.now = start;
  }

  /** Since the story began. */
  get elapsed() {
    return this.now - this.start;
  }

  /** Only inside `run`. Of two that wake at the same instant, the one that lay down first is the first. */
  sleep(ms) {
    return new Promise((wake) => {
      this.#sleepers.push({ at: this.now + ms, wake });
      this.#awake -= 1;
      this.#next();
    });
  }

  /** Runs the tasks to their end, one at a time, so that the story is the same each time it is told. */
  async run(tasks) {
    this.#awake += tasks.length;
    await Promise.all(
      tasks.map(async (task) => {
        try {
          await this.sleep(0);
          await task();
        } finally {
          this.#awake -= 1;
          this.#next();
        }
      }),
    );
  }

  /** Moves time on while nobody is inside `run`. */
  advance(ms) {
    this.now += ms;
  }

  #next() {
    if (this.#awake > 0 || this.#sleepers.length === 0) return;
    let first = 0;
    this.#sleepers.forEach(({ at }, index) => {
      if (at < this.#sleepers[first].at) first = index;
    });
    const [{ at, wake }] = this.#sleepers.splice(first, 1);
    this.now = Math.max(this.now, at);
    this.#awake += 1;
    wake();
  }
}
