// The default clock: the time of day, carried on where it is set back.

// A smaller step back is jitter: the clock stands still over it.
const JITTER = 10;

/**
 * It never runs backwards. When the system's clock is set back by an hour, it goes on from where it was, at the pace
 * of the monotonic clock; when it is set forward, or the machine slept, it follows at once, so that a lease does not
 * outlive the time that its holder spent asleep.
 */
export function systemClock() {
  let last = Date.now();
  let offset = 0;
  let anchor = last;
  let anchored = monotonic();
  return () => {
    const now = Date.now() + offset;
    if (now >= last) return (last = now);
    if (last - now < JITTER) return last;
    const present = monotonic();
    const elapsed = Math.max(present - anchored, 0);
    last = Math.max(last, anchor + elapsed);
    offset += last - now;
    anchor = last;
    anchored = present;
    return last;
  };
}

// Where there is no monotonic clock, as in some worklets, the clock stands still when it is set back.
function monotonic() {
  const { performance } = globalThis;
  return typeof performance?.now === 'function' ? performance.now() : 0;
}
