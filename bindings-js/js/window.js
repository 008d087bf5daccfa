// The garbage-collection window, without promises.
import { keyOf } from './changes.js';
import { AFTER, KEY, NONE } from './core.js';
import { maybeInstant } from './entries.js';
import { duration, instant, items, keeps, known, limit, maybeRevision, object, revision } from './input.js';

// The ways of `window_reclaim` in src/window.rs.
const MARK = 0;
const FINISH = 1;
const DELETE = 2;

// By the numbers of `flatten_outcome` there, from -1 down.
const OUTCOMES = ['marked', 'absent', 'unmarked', 'voided', 'lapsed'];

export class SyncGcWindow {
  #core;

  constructor(core) {
    this.#core = core;
  }

  stage(candidates, options) {
    const core = this.#core;
    const keep = keeps(known(options, ['restage'], 'window.stage').restage, 'window.stage');
    const batch = items(candidates, 'window.stage: the candidates').map((candidate, index) => {
      const { key, visibleAfter } = object(candidate, `window.stage: candidate ${index}`);
      return [keyOf(core, key), instant(visibleAfter, `window.stage: visibleAfter of candidate ${index}`)];
    });
    const now = core.now();
    send(core, batch);
    core.call('window_stage', keep, now);
  }

  unstage(keys) {
    const core = this.#core;
    send(core, keyed(core, keys, 'window.unstage'));
    return core.call('window_unstage');
  }

  take(options) {
    const core = this.#core;
    const { now: at, limit: atMost } = known(options, ['now', 'limit'], 'window.take');
    const most = limit(atMost, 'window.take: limit');
    const now = core.now();
    const due = at === undefined ? now : instant(at, 'window.take: now');
    const cells = core.call('window_take', due, most, now);
    const rows = [];
    for (let i = 0; i < cells.length; i += 2) rows.push({ key: cells[i], visibleAfter: cells[i + 1] });
    return rows;
  }

  claim(options) {
    const core = this.#core;
    const { now: at, lease, limit: atMost } = known(options, ['now', 'lease', 'limit'], 'window.claim');
    const most = limit(atMost, 'window.claim: limit');
    const now = core.now();
    const due = at === undefined ? now : instant(at, 'window.claim: now');
    const cells = core.call('window_claim', due, duration(lease), most, now);
    const rows = [];
    for (let i = 0; i < cells.length; i += 6) {
      const [key, visibleAfter, id, until, reclaiming, requeues] = cells.slice(i, i + 6);
      rows.push({ key, visibleAfter, id, until, reclaiming, requeues });
    }
    return rows;
  }

  settle(claims) {
    const core = this.#core;
    const batch = claimed(core, claims, 'window.settle');
    const now = core.now();
    send(core, batch);
    return core.call('window_settle', now);
  }

  requeue(claims, options) {
    const core = this.#core;
    const at = instant(known(options, ['visibleAfter'], 'window.requeue').visibleAfter, 'window.requeue: visibleAfter');
    const batch = claimed(core, claims, 'window.requeue');
    const now = core.now();
    send(core, batch);
    return core.call('window_requeue', at, now);
  }

  mark(claims, options) {
    return reclaim(this.#core, claims, options, MARK, 'window.mark');
  }

  finish(claims, options) {
    return reclaim(this.#core, claims, options, FINISH, 'window.finish');
  }

  delete(claims, options) {
    return reclaim(this.#core, claims, options, DELETE, 'window.delete');
  }

  judge(keys) {
    const core = this.#core;
    const batch = keyed(core, keys, 'window.judge');
    const now = core.now();
    send(core, batch);
    return outcomes(core.call('window_judge', now));
  }

  list(options) {
    const core = this.#core;
    const { after, limit: atMost } = known(options, ['after', 'limit'], 'window.list');
    const most = limit(atMost, 'window.list: limit');
    if (after === undefined) return windowRows(core.call('window_list', NONE, 0, most));
    const { key, visibleAfter } = object(after, 'window.list: after');
    const at = instant(visibleAfter, 'window.list: visibleAfter of after');
    return windowRows(core.call('window_list', core.writeKey(key, AFTER, 1), at, most));
  }

  info(key) {
    const core = this.#core;
    const rows = windowRows(core.call('window_info', core.writeKey(key, KEY, 0)));
    return rows.length === 0 ? null : rows[0];
  }

  stats(options) {
    const core = this.#core;
    const { now: at } = known(options, ['now'], 'window.stats');
    const now = core.now();
    core.call('window_stats', at === undefined ? now : instant(at, 'window.stats: now'), now);
    const [rows, due, claimed, reclaiming, requeued, oldest] = [0, 1, 2, 3, 4, 5].map((place) => core.left(place));
    return { rows, due, claimed, reclaiming, requeued, oldest: maybeInstant(oldest) };
  }

  beginSweep(ttl) {
    const core = this.#core;
    return core.call('sweep_begin', duration(ttl), core.now()) || null;
  }

  extendSweep(epoch, ttl) {
    const core = this.#core;
    return core.call('sweep_extend', revision(epoch, 'window.extendSweep: the epoch'), duration(ttl), core.now()) === 1;
  }

  endSweep(epoch) {
    return this.#core.call('sweep_end', revision(epoch, 'window.endSweep: the epoch')) === 1;
  }
}

function reclaim(core, claims, options, how, call) {
  const epoch = maybeRevision(known(options, ['epoch'], call).epoch, `${call}: epoch`);
  const batch = claimed(core, claims, call);
  const now = core.now();
  send(core, batch);
  return outcomes(core.call('window_reclaim', how, epoch, now));
}

const outcomes = (cells) =>
  cells.map((cell) => (cell < 0 ? { outcome: OUTCOMES[-1 - cell] } : { outcome: 'deleted', bytes: cell }));

function windowRows(cells) {
  const rows = [];
  for (let i = 0; i < cells.length; i += 5) {
    const [key, visibleAfter, until, reclaiming, requeues] = cells.slice(i, i + 5);
    rows.push({ key, visibleAfter, claimedUntil: maybeInstant(until), reclaiming, requeues });
  }
  return rows;
}

const keyed = (core, keys, call) => items(keys, `${call}: the keys`).map((key) => [keyOf(core, key), 0]);

function claimed(core, claims, call) {
  return items(claims, `${call}: the claims`).map((claim, index) => {
    const { key, id } = object(claim, `${call}: claim ${index}`);
    return [keyOf(core, key), revision(id, `${call}: id of claim ${index}`)];
  });
}

/** Hands a list over, after everything that may run code of the user's. */
function send(core, batch) {
  core.call('begin_batch');
  for (const [key, number] of batch) core.call('batch_key', core.writeKey(key, KEY, 0), number);
}
