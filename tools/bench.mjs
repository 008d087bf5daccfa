// Runs every benchmark there is, prints one table and draws it.
//
//   node tools/bench.mjs                    quick: about two minutes once all is built
//   node tools/bench.mjs --full             longer rounds, larger stores: under twenty minutes
//   node tools/bench.mjs --only mem,node    some of: mem sqlite postgres node chromium size
//   node tools/bench.mjs --only sweep,mem:locks    some jobs of the native programs, of all or of one
//
// Each program measures by itself (tests/bench-native, tests/bench-js) and leaves its rows as JSON in
// target/bench/rows. From them come target/bench/results.json, an array of {job, engine, peer, ratio, goal, lower},
// and the plots, target/bench/*.svg. A program that cannot run is said aloud; where CI is set it is a failure.
// docs/benchmarks.md tells what the rows mean.
import { execFileSync, spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';
import { bars, curves } from './plot.mjs';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const OUT = join(ROOT, 'target/bench');
const ROWS = join(OUT, 'rows');
const NATIVE = join(ROOT, 'tests/bench-native');
const JS = join(ROOT, 'tests/bench-js');
const TARGET_DIR = join(process.env.CARGO_TARGET_DIR ?? join(ROOT, 'target'), 'bench-native');
const MINUTE = 60_000;

const args = process.argv.slice(2);
const full = take('--full') !== undefined;
const only = take('--only', true)?.split(',');
if (args.length > 0) usage(`cannot read '${args[0]}'`);

// With the jobs that can be asked for by name, as the programs call them.
const ENGINES = {
  mem: { about: 'memory, Rust', run: () => native('mem'), jobs: ['locks', 'threads', 'entries', 'window', 'sweep', 'growth', 'purge'] },
  sqlite: { about: 'SQLite', run: () => native('sqlite'), jobs: ['pairs', 'callers', 'losing', 'entries', 'window', 'sweep', 'growth', 'processes'] },
  postgres: { about: 'PostgreSQL', run: () => native('postgres'), jobs: ['pairs', 'losing', 'window', 'sweep', 'arbitration', 'growth'] },
  node: { about: 'npm package in Node', run: node },
  chromium: { about: 'npm package in Chromium', run: page },
  size: { about: 'npm package, size', run: size },
};
// What to run of each program: nothing named is all of it.
const jobs = new Map();
for (const name of only ?? Object.keys(ENGINES)) {
  if (name in ENGINES) {
    jobs.set(name, []);
    continue;
  }
  const [job, engine] = name.split(':').reverse();
  const having = Object.keys(ENGINES).filter((name) => (engine ?? name) === name && ENGINES[name].jobs?.includes(job));
  if (having.length === 0) usage(`there is no benchmark '${name}'`);
  for (const name of having) if (jobs.get(name)?.length !== 0) jobs.set(name, [...(jobs.get(name) ?? []), job]);
}
const wanted = Object.keys(ENGINES).filter((name) => jobs.has(name));

function take(flag, value = false) {
  const at = args.indexOf(flag);
  if (at < 0) return undefined;
  return args.splice(at, value ? 2 : 1).at(-1);
}

function usage(problem) {
  console.error(`bench: ${problem}\nusage: node tools/bench.mjs [--full] [--only ${Object.keys(ENGINES).join(',')}]`);
  for (const [name, { jobs }] of Object.entries(ENGINES)) if (jobs) console.error(`  jobs of ${name}: ${jobs.join(' ')}`);
  process.exit(2);
}

const began = Date.now();
const clock = () => `${String(Math.floor((Date.now() - began) / 1000)).padStart(4)} s`;
const say = (line) => console.error(`${clock()}  ${line}`);

rmSync(ROWS, { recursive: true, force: true });
mkdirSync(ROWS, { recursive: true });
say(full ? 'full: under twenty minutes once all is built' : 'quick: about two minutes once all is built; numbers to publish come from FULL=1');

// All of it is built before anything is measured, so that no compiler runs beside a benchmark.
const failed = new Map();
for (const name of ['mem', 'sqlite', 'postgres']) {
  if (wanted.includes(name)) await attempt(name, () => compile(name));
}
const results = [];
for (const name of wanted) {
  if (failed.has(name)) continue;
  say(`${ENGINES[name].about} ...`);
  await attempt(name, async () => results.push(...checked(name, await ENGINES[name].run())));
}

async function attempt(name, work) {
  try {
    await work();
  } catch (error) {
    failed.set(name, error.message);
    say(`!! ${ENGINES[name].about}: ${error.message}`);
  }
}

// Runs a program, shows its progress (what it writes to the standard error) and keeps its own table to itself.
function program(command, argv, { env, minutes = full ? 20 : 6, cwd = ROOT } = {}) {
  return new Promise((resolve, reject) => {
    const settings = { BENCH: full ? 'full' : 'quick', BENCH_OUT: ROWS, ...env };
    const child = spawn(command, argv, { cwd, env: { ...process.env, ...settings }, stdio: ['ignore', 'ignore', 'pipe'] });
    const late = setTimeout(() => child.kill('SIGTERM'), minutes * MINUTE);
    let last = '';
    let rest = '';
    child.stderr.setEncoding('utf8').on('data', (text) => {
      const lines = (rest + text).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        say(line);
        // Of an error that is thrown the second line tells more than where it ends.
        if (/\w*Error\b.*:|panicked/.test(line) || !/^\s*(at |Node\.js|note:|$)/.test(line)) last = line.trim();
      }
    });
    child.on('error', (error) => reject(new Error(`${command} does not start: ${error.message}`)));
    child.on('close', (code, signal) => {
      clearTimeout(late);
      if (code === 0) resolve();
      else reject(new Error(signal ? `ended after ${minutes} minutes (${signal})` : `ended with ${code}: ${rest.trim() || last}`));
    });
  });
}

async function compile(name) {
  if (!existsSync(join(NATIVE, name, 'Cargo.toml'))) throw new Error(`there is no tests/bench-native/${name}`);
  say(`building bench-${name} (the first time: one to three minutes) ...`);
  const argv = ['build', '--release', '--locked', '--quiet', '--package', `bench-${name}`, '--target-dir', TARGET_DIR];
  await program('cargo', argv, { cwd: NATIVE, minutes: 20 });
}

async function native(name) {
  await program(join(TARGET_DIR, 'release', `bench-${name}`), jobs.get(name));
  return rows(name);
}

async function node() {
  // The collector is called where bytes are counted, and nowhere else.
  await program(process.execPath, ['--expose-gc', join(JS, 'node.js')]);
  return rows('node');
}

function rows(name) {
  const file = join(ROWS, `${name}.json`);
  if (!existsSync(file)) throw new Error('it left no rows: see what it said above');
  return JSON.parse(readFileSync(file, 'utf8'));
}

function find(programs) {
  for (const name of programs) {
    for (const folder of (process.env.PATH ?? '').split(delimiter)) {
      if (folder && existsSync(join(folder, name))) return join(folder, name);
    }
  }
  throw new Error(`none of these is on PATH: ${programs.join(', ')}`);
}

async function page() {
  const executablePath = find(['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome']);
  const bundle = await build({
    alias: { 'node:util': join(JS, 'util.js') },
    bundle: true,
    entryPoints: [join(JS, 'browser.js')],
    format: 'esm',
    logLevel: 'error',
    platform: 'browser',
    target: 'es2022',
    write: false,
  });
  const script = Buffer.from(bundle.outputFiles[0].contents);
  const server = createServer((request, response) => {
    // Isolated pages get the finer clock.
    response.setHeader('cross-origin-opener-policy', 'same-origin');
    response.setHeader('cross-origin-embedder-policy', 'require-corp');
    if (request.url === '/bench.js') response.setHeader('content-type', 'text/javascript').end(script);
    else response.setHeader('content-type', 'text/html').end('<!doctype html><title>bench</title><script type="module" src="bench.js"></script>');
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  let browser;
  try {
    // Chromium's sandbox refuses to run as root, as in most CI images.
    browser = await chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] });
    const tab = await browser.newPage();
    await tab.exposeFunction('say', (line) => say(`  ${line}`));
    const broken = new Promise((_, reject) => tab.on('pageerror', reject));
    await tab.goto(`http://127.0.0.1:${server.address().port}/`);
    await Promise.race([tab.waitForFunction(() => globalThis.bench !== undefined), broken]);
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error('the page takes too long')), (full ? 8 : 3) * MINUTE).unref());
    return await Promise.race([tab.evaluate((full) => globalThis.bench(full, (line) => globalThis.say(line)), full), broken, late]);
  } finally {
    await browser?.close();
    server.close();
  }
}

function size() {
  const { goals, ...parts } = JSON.parse(readFileSync(join(ROOT, 'bindings-js/dist/sizes.json'), 'utf8'));
  const kilobytes = (part, what, how) => {
    const bytes = parts[part][how];
    const goal = goals[part]?.[how];
    return { job: `${what}, ${how}`, engine: 'size', peer: 'kB', ratio: bytes / 1000, goal: goal === undefined ? null : goal / 1000, lower: true, note: `${bytes} bytes` };
  };
  return [
    ...['raw', 'gzip', 'brotli'].map((how) => kilobytes('wasm', 'wasm', how)),
    kilobytes('js', 'JS as shipped, without the wasm in it', 'gzip'),
    kilobytes('bundled', 'JS bundled and minified', 'gzip'),
  ];
}

function checked(name, rows) {
  if (!Array.isArray(rows) || rows.length === 0) throw new Error('it gave no rows');
  for (const { job, peer, ratio, goal, lower } of rows) {
    const sound = typeof job === 'string' && typeof peer === 'string' && Number.isFinite(ratio) && typeof lower === 'boolean';
    if (!sound || !(goal === null || Number.isFinite(goal))) throw new Error(`a row is broken: ${job} against ${peer}: ${ratio}`);
  }
  return rows.map((row) => ({ ...row, engine: name }));
}

const met = ({ ratio, goal, lower }) => (goal === null ? undefined : lower ? ratio <= goal : ratio >= goal);

// Three digits that count.
function figure(number) {
  if (number >= 100) return number.toFixed(0);
  return number.toFixed(number >= 10 ? 1 : 2);
}

function table() {
  const lines = [];
  const cells = results.map((row) => {
    const goal = row.goal === null ? '' : `${row.lower ? '<=' : '>='} ${row.goal}`;
    return { row, cells: [row.job, row.peer, `${figure(row.ratio)}${row.lower ? '' : ' x'}`, goal, { true: 'met', false: 'MISSED' }[met(row)] ?? '', row.note ?? ''] };
  });
  const heads = ['job', 'against', 'figure', 'goal', '', 'measured'];
  const width = heads.map((head, at) => Math.max(head.length, ...cells.map(({ cells }) => cells[at].length)));
  const line = (cells) => cells.map((cell, at) => (at === 2 || at === 3 ? cell.padStart(width[at]) : cell.padEnd(width[at]))).join('  ').trimEnd();
  const colours = process.stdout.isTTY && !process.env.NO_COLOR;
  const paint = (text, code) => (colours && code ? `\x1b[${code}m${text}\x1b[0m` : text);
  for (const name of wanted) {
    const own = cells.filter(({ row }) => row.engine === name);
    if (own.length === 0) continue;
    lines.push('', paint(`${name}: ${ENGINES[name].about}`, 1), line(heads));
    lines.push(width.map((wide) => '-'.repeat(wide)).join('  '));
    let job = '';
    for (const { row, cells } of own) {
      const text = line(row.job === job ? ['', ...cells.slice(1)] : cells);
      job = row.job;
      lines.push(paint(text, { true: 32, false: 31 }[met(row)]));
    }
  }
  return lines.join('\n');
}

const machine = `${cpus().length} x ${cpus()[0]?.model.trim() ?? 'unknown CPU'}, Node ${process.version}`;
const revision = (() => {
  try {
    return execFileSync('git', ['describe', '--always', '--dirty'], { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return 'unknown revision';
  }
})();
const goals = results.filter((row) => row.goal !== null);
const missed = goals.filter((row) => !met(row));

const plain = results.map(({ job, engine, peer, ratio, goal, lower }) => ({ job, engine, peer, ratio: Number(ratio.toPrecision(5)), goal, lower }));
writeFileSync(join(OUT, 'results.json'), `${JSON.stringify(plain, null, 2)}\n`);
for (const file of readdirSync(OUT)) if (file.endsWith('.svg')) rmSync(join(OUT, file));
const plots = [];
for (const name of wanted) {
  const own = results.filter((row) => row.engine === name);
  for (const [kind, draw] of [['ratios', bars], ['growth', curves]]) {
    const svg = draw(own, { title: ENGINES[name].about, subtitle: `${new Date().toISOString().slice(0, 10)}, ${machine}` });
    if (svg === undefined) continue;
    plots.push(`target/bench/${name}-${kind}.svg`);
    writeFileSync(join(OUT, `${name}-${kind}.svg`), svg);
  }
}

console.log(`alkstore ${revision}, ${full ? 'full' : 'quick'} run of ${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC on ${machine}`);
console.log('A figure with an x is how many times as fast as the peer (more is better); one without is a measure (less is better).');
console.log(table());
console.log(`\n${goals.length - missed.length} of ${goals.length} goals met. ${plain.length} rows in target/bench/results.json; plots: ${plots.join(' ') || 'none'}`);
if (wanted.includes('node')) {
  console.log('No figure yet, since the package has no such calls: locks in batches of 64 (goal >= 15 x lru-cache), a port with 64 calls in one message (goal >= 25 x single calls).');
}
for (const [name, why] of failed) console.log(`!! NOT MEASURED: ${ENGINES[name].about}: ${why}`);
say('done');
// A missed goal is a figure, not a failure; what was not measured is no figure.
process.exit(failed.size > 0 && (process.env.CI || failed.size === wanted.length) ? 1 : 0);
