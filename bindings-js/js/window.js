// The garbage-collection window, without promises.
import { keyOf } from './changes.js';
import { KEY } from './core.js';
import { duration, instant, items, keeps, known, limit, object, revision } from './input.js';

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
    send(core, items(keys, 'window.unstage: the keys').map((key) => [keyOf(core, key), 0]));
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
    for (let i = 0; i < cells.length; i += 4) {
      rows.push({ key: cells[i], visibleAfter: cells[i + 1], id: cells[i + 2], until: cells[i + 3] });
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
}

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
