#!/usr/bin/env node
// alkstore at work on real files. `make demo` builds the package and runs this; see --help.
import { existsSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { StoryClock } from './clock.mjs';
import { BUILT, LIMITS, list, MIB, reason } from './folder.mjs';
import { bytes, count, meter, Screen, shown, wrap } from './screen.mjs';
import { collect, copy, deal, fileAll, TTL, WORKERS } from './story.mjs';

const HELP = `usage: node bindings-js/demo/demo.mjs [FOLDER] [--json]

Puts the files of a folder into an alkstore in memory: four workers share the work by leases, one of them stalls past
its lease and is refused, references are dropped, a dry run foretells a sweep of the garbage, and the store is copied by a
snapshot. Nothing is written to the disk. Without FOLDER it reads the project's own tree, without ${[...BUILT].join(', ')}.

  --json   print only the counts, as JSON
  --help   print this

It leaves out links, other file systems, files above ${LIMITS.fileBytes / MIB} MiB, what goes beyond ${LIMITS.totalBytes / MIB} MiB in all, and
whatever comes after ${LIMITS.files.toLocaleString('en')} files, and says so. It exits with 0 when all counts add up, with 1 when they do not or the folder cannot be used, and with 2
when it was called wrongly.`;

const HERE = dirname(fileURLToPath(import.meta.url));
const PACKAGE = new URL('../dist/package/index.js', import.meta.url);

function fail(status, message) {
  process.stderr.write(`demo: ${message}\n`);
  process.exit(status);
}

function parse() {
  try {
    const { values, positionals } = parseArgs({ allowPositionals: true, options: { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } });
    if (positionals.length > 1) fail(2, `one folder at a time, not ${positionals.length} (see --help)`);
    return { ...values, folder: positionals[0] };
  } catch (error) {
    // Its first sentence says what is wrong, the rest is advice for folders named like options.
    return fail(2, `${error.message.split('. ')[0]} (see --help)`);
  }
}

async function files(options, screen) {
  const root = resolve(options.folder ?? resolve(HERE, '../..'));
  if (!existsSync(root)) fail(1, `there is no folder ${root}`);
  if (!statSync(root).isDirectory()) fail(1, `${root} is a file: give the folder that it is in`);
  let listed;
  try {
    const progress = (found) => screen.progress('looking at files', found);
    listed = await list(root, { without: options.folder === undefined ? BUILT : undefined, progress });
  } catch (error) {
    fail(1, `${root} is ${reason(error)}`);
  }
  if (listed.files.length === 0) {
    const why = listed.skipped.length > 0 ? `no file that can be used: ${summed(listed.skipped)}` : 'no files: give a folder with some';
    fail(1, `${root} has ${why}`);
  }
  return { root, ...listed };
}

/** What was left out and why, for instance `3 links, 1 above 64 MiB`. */
function summed(skipped) {
  const whys = new Map();
  for (const { why } of skipped) whys.set(why, (whys.get(why) ?? 0) + 1);
  return [...whys].map(([why, number]) => `${number.toLocaleString('en')} × ${why}`).join(', ');
}

function gantt(screen, bars, end) {
  const room = screen.width - 8;
  const at = (ms) => Math.round((ms / end) * (room - 1));
  for (const who of WORKERS) {
    const cells = Array.from({ length: room }, () => ' ');
    const styles = Array.from({ length: room });
    for (const bar of bars.filter((found) => found.who === who)) {
      const to = Math.max(at(bar.to), at(bar.from));
      for (let cell = at(bar.from); cell <= to; cell += 1) {
        const ms = (cell / (room - 1)) * end;
        const [mark, style] = bar.stall === undefined || ms < bar.stall ? ['█', 'green'] : ms < bar.lapse ? ['▒', 'yellow'] : ['·', 'dim'];
        cells[cell] = mark;
        styles[cell] = style;
      }
      // A shard's number, where there is room for it, and a gap that parts it from the one before.
      const label = String(bar.shard);
      if (at(bar.from) > 0) cells[at(bar.from)] = ' ';
      if (to - at(bar.from) > label.length + 1) {
        [...label].forEach((digit, index) => {
          cells[at(bar.from) + 1 + index] = digit;
          styles[at(bar.from) + 1 + index] = 'bold';
        });
      }
      if (bar.stall !== undefined) {
        cells[to] = '✗';
        styles[to] = 'red';
      }
    }
    screen.line(`  ${screen.paint('bold', who.padEnd(5))} ${cells.map((cell, index) => (styles[index] ? screen.paint(styles[index], cell) : cell)).join('')}`);
  }
  const seconds = `${(end / 1000).toFixed(1)} s`;
  screen.line(screen.paint('dim', `        0 s${seconds.padStart(room - 3)}`));
  screen.text(`█ lease held, with the shard's number   ▒ stalled while the lease is live   · stalled and lapsed   ✗ write refused`, '        ', 'dim');
}

/** What must be true of the counts: a name, and the two sides. */
function equations({ read, shards, leases, fenced, window, snapshot, left, stalled }) {
  const stalls = stalled ? 1 : 0;
  return [
    ['files = distinct contents + duplicates', read.files, read.distinct + read.duplicates],
    ['bytes read = bytes stored + bytes saved', read.bytes, read.distinctBytes + read.duplicateBytes],
    ['leases granted = shards done + leases lapsed', leases.granted, shards.done + leases.lapsed],
    ['shards done = shards dealt', shards.done, shards.dealt],
    ['stale writes refused = workers stalled', fenced.refused, stalls],
    ["the successor's write stands", stalled?.stands ?? true, true],
    ['names dropped = last names + others', window.dropped, window.staged + window.shared],
    ['staged = rescued + swept + waiting', window.staged, window.rescued + window.taken + window.waiting],
    ['the dry run foretold the sweep', window.foretold, true],
    ['contents spared = contents pinned', window.spared, window.pinned],
    ['nothing swept early or under a claim', window.early + window.whileClaimed, 0],
    ['names left = files - dropped + rescued', left.names, read.files - window.dropped + window.rescued],
    ['contents left = distinct - swept', left.contents, read.distinct - window.taken],
    ['bytes left = bytes stored - bytes freed', left.bytes, read.distinctBytes - window.freed],
    ['copied contents that match their SHA-256', snapshot.rehashed, left.contents],
    ['the copy equals the store', snapshot.equal && snapshot.contended && snapshot.renewed, true],
  ];
}

async function main() {
  const options = parse();
  if (options.help) {
    console.log(HELP);
    return;
  }
  if (!existsSync(PACKAGE)) fail(1, 'the package is not built yet: run `make demo`, which builds it first');
  const { open, AlkError } = await import(PACKAGE);
  const screen = new Screen(process.stdout, { quiet: options.json });
  const started = performance.now();

  const found = await files(options, screen);
  const shards = deal(found.files);
  screen.heading('The files');
  screen.text(`${count(found.files.length, 'file')}, ${bytes(found.bytes)}, in ${shown(found.root)}, dealt to ${count(shards.length, 'shard')}.`);
  if (found.stopped) screen.text(`The listing stopped ${found.stopped}.`, '', 'yellow');
  if (found.skipped.length > 0) screen.text(`Left out: ${summed(found.skipped)}.`, '', 'yellow');

  const clock = new StoryClock();
  const store = await open({ clock: () => clock.now });
  screen.heading(
    'The workers',
    `${WORKERS.length} async tasks in this process share one store. Each takes a shard's lease for ${TTL / 1000} s, renews it while it works, and writes each file under it. The clock is the demo's own: the seconds below pass only in the story.`,
  );
  const tell = (who, text, style) => screen.event(clock.elapsed, who, text, style);
  const filed = await fileAll({ store, clock, shards, AlkError, tell, progress: (done, total) => screen.progress('filing', done, total) });
  screen.line();
  gantt(screen, filed.bars, clock.elapsed);
  if (filed.skipped.length > 0) screen.text(`Left out while reading: ${summed(filed.skipped)}.`, '', 'yellow');

  screen.heading(
    'The garbage',
    'Every third name is dropped. A content without a name waits in the window. Then a sweep asks for each whether a name or a pin is there again, and deletes the rest.',
  );
  const gone = new Set(filed.skipped.map(({ path }) => path));
  const paths = found.files.map(({ path }) => path).filter((path) => !gone.has(path));
  const window = await collect({ store, clock, paths, files: found.files, tell, progress: (done, total) => screen.progress('sweeping', done, total) });

  screen.heading('The copy', 'A snapshot of the store is restored into a second one, and all that can be seen of both is compared.');
  const metas = await store.entries.list('sha256/');
  const names = (await store.entries.list('file/')).length + (await store.entries.list('long/')).length;
  const left = { names, contents: metas.length, bytes: metas.reduce((sum, { size }) => sum + size, 0) };
  const snapshot = await copy({ store, clock, open, tell, progress: (done, total) => screen.progress('comparing', done, total) });
  await store.close();

  const { counts } = filed;
  const report = {
    folder: found.root,
    read: {
      files: counts.files, bytes: counts.bytes,
      distinct: counts.distinct, distinctBytes: counts.distinctBytes,
      duplicates: counts.duplicates, duplicateBytes: counts.duplicateBytes,
      skipped: found.skipped.length + filed.skipped.length, stopped: found.stopped !== undefined,
    },
    shards: { dealt: shards.length, done: counts.shards },
    leases: { granted: counts.granted, losing: counts.losing, renewed: counts.renewed, released: counts.released, lapsed: counts.lapsed },
    fenced: { refused: counts.refused },
    stalled: filed.stalled.who === undefined ? null : filed.stalled,
    window,
    left,
    snapshot,
  };
  const checks = equations(report).map(([name, one, other]) => ({ name, one, other, holds: one === other }));
  const wrong = checks.filter(({ holds }) => !holds);

  if (options.json) console.log(JSON.stringify({ ...report, checks }, null, 2));
  else summary(screen, report, checks, performance.now() - started);
  if (wrong.length > 0) fail(1, `the counts do not add up: ${wrong.map(({ name, one, other }) => `${name} (${one}, ${other})`).join('; ')}`);
}

function summary(screen, { folder, read, leases, fenced, window, snapshot }, checks, ms) {
  screen.heading('The summary', `of ${shown(folder)}, in ${(ms / 1000).toFixed(1)} s of real time`);
  const share = read.bytes === 0 ? 1 : read.distinctBytes / read.bytes;
  const rows = [
    ['read', `${count(read.files, 'file')}, ${bytes(read.bytes)}`],
    ['stored', `${count(read.distinct, 'distinct content')}, ${bytes(read.distinctBytes)}`, meter(share, 20)],
    ['saved', `${count(read.duplicates, 'duplicate')}, ${bytes(read.duplicateBytes)}`],
    ['leases', `${leases.granted} granted, ${leases.renewed} renewed, ${leases.released} released, ${leases.lapsed} lapsed; ${count(leases.losing, 'try', 'tries')} found the lock held`],
    ['fenced', `${count(fenced.refused, 'stale write')} refused`],
    ['garbage', `${count(window.dropped, 'name')} dropped, ${count(window.staged, 'content')} staged, ${window.rescued} rescued, ${window.pinned} pinned for a while, ${window.taken.toLocaleString('en')} swept (${bytes(window.freed)}), ${window.waiting} waiting`],
    ['copied', `${bytes(snapshot.bytes)} of snapshot, ${count(snapshot.rehashed, 'content')} hashed again`],
  ];
  for (const [name, text, bar] of rows) {
    const [first, ...rest] = wrap(text, screen.width - 11);
    screen.line(`  ${screen.paint('bold', name.padEnd(8))} ${first}`);
    for (const more of rest) screen.line(`           ${more}`);
    if (bar) screen.line(`           ${screen.paint('cyan', bar)} ${Math.round(share * 100)} % of what was read`);
  }
  screen.line();
  for (const { name, one, other, holds } of checks) {
    const sides = typeof one === 'number' ? `${one.toLocaleString('en')} = ${other.toLocaleString('en')}` : String(one);
    screen.line(`  ${holds ? screen.paint('green', '✓') : screen.paint('red', '✗')} ${name}  ${screen.paint('dim', sides)}`);
  }
  screen.line();
}

await main();
