// Breaks guards one at a time, in core and in the engines, and checks that a test notices.
//
//   node tests/mutants.mjs [--only TEXT] [--list] [--check]
//
// Every mutant is one small change that still compiles. It is made in a copy of the tree, with a target folder of its
// own. `target` says which test program is to notice: `list/ENGINE` is the conformance list on an engine, `native/NAME`
// a program of the native engines. `by` is the name of a test there, or the beginning of one, that must turn red. A mutant
// that no test notices, or not the one named, ends the run with an error: then a test is missing.
//
// --only takes the mutants whose group (core, postgres, sqlite), file, name, target or test contains TEXT, or one of
// several, TEXT|TEXT. --check runs none: it sees that each is fresh, and that docs/safe-deletion.md names tests and
// mutants that there are.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import core from './mutants/core.mjs';
import postgres from './mutants/postgres.mjs';
import sqlite from './mutants/sqlite.mjs';
import { wrongIn } from './mutants/docs.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const groups = { core, postgres, sqlite };
const MUTANTS = Object.entries(groups).flatMap(([group, mutants]) => mutants.map((mutant) => ({ group, ...mutant })));

const args = process.argv.slice(2);
const only = args.includes('--only') ? args[args.indexOf('--only') + 1].split('|') : [''];
const chosen = MUTANTS.filter(({ group, what, file, target, by }) => only.some((text) => `${group} ${file} ${what} ${target} ${by}`.includes(text)));
if (args.includes('--list')) {
  for (const { what, file, by } of chosen) console.log(`${file}: ${what} -> ${by}`);
  process.exit(0);
}
if (args.includes('--check')) {
  const wrong = [...stale(), ...wrongIn(root, MUTANTS, testNames())];
  for (const line of wrong) console.error(`mutants: ${line}`);
  console.log(`mutants: ${MUTANTS.length} looked at, ${wrong.length} things wrong`);
  process.exit(wrong.length === 0 ? 0 : 1);
}

const work = join(process.env.CARGO_TARGET_DIR ?? join(root, 'target'), 'mutants');
const env = { ...process.env, CARGO_TARGET_DIR: join(work, 'target'), RUSTFLAGS: '-Awarnings', RUST_BACKTRACE: '0', CARGO_INCREMENTAL: '1' };
delete env.CI;

// The list on the memory engine needs neither the other engines nor their dependencies, so it has a tree of its own.
const trees = {
  mem: { path: join(work, 'tree'), members: ['core', 'mem', 'tests'], files: ['tests/Cargo.toml', 'tests/src', 'tests/tests'] },
  all: { path: join(work, 'engines'), members: ['core', 'mem', 'native-engines', 'tests'], files: ['native-engines', 'tests/Cargo.toml', 'tests/src', 'tests/tests'] },
};
const treeOf = ({ target }) => (target === 'list/mem' ? trees.mem : trees.all);

// These differ from the root's.
const SCHEMA = 'native-engines/src/postgres/schema.rs';
const SUPPORT = 'native-engines/tests/postgres_support/mod.rs';
const OVERWRITTEN = new Set(['tests/Cargo.toml', SCHEMA, SUPPORT]);
// The test programs of the code as it is now.
const built = new Map();

const used = new Set(chosen.map(treeOf));
for (const tree of used) copy(tree);
if (used.has(trees.mem)) {
  const OTHER_ENGINES = /\[target\.'cfg\(not\(target_arch = "wasm32"\)\)'\.dev-dependencies\][\s\S]*?^(?=\[)/m;
  put(trees.mem, 'tests/Cargo.toml', readFileSync(join(root, 'tests/Cargo.toml'), 'utf8').replace(OTHER_ENGINES, ''));
}
if (used.has(trees.all)) {
  put(trees.all, 'tests/Cargo.toml', readFileSync(join(root, 'tests/Cargo.toml')));
  put(trees.all, 'native-engines/tests/mutants_server.rs', readFileSync(join(root, 'tests/mutants/server.rs')));
  // Read at run time, so that a mutant of a statement needs no compiler.
  put(trees.all, SCHEMA, replaced(readFileSync(join(root, SCHEMA), 'utf8'), 'const PARTS: &str = include_str!("schema.sql");', `static PARTS: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/schema.sql")).unwrap_or_default()
});`, SCHEMA));
  // Where nobody comes to wait, as with a guard that is gone, half a minute is long.
  put(trees.all, SUPPORT, replaced(readFileSync(join(root, SUPPORT), 'utf8'), 'for _ in 0..10_000 {', 'for _ in 0..2_000 {', SUPPORT));
}

const server = chosen.some(({ target }) => target.includes('postgres')) ? await serve() : null;
const wrong = await run();
if (server) {
  server.stdin.end();
  await once(server, 'exit');
}
console.log(`mutants: ${chosen.length - wrong} of ${chosen.length} killed as expected`);
process.exit(wrong === 0 ? 0 : 1);

async function run() {
  // First the unbroken code: each of the tests is green, and there is one.
  for (const target of new Set(chosen.map(({ target }) => target))) {
    const by = [...new Set(chosen.filter((mutant) => mutant.target === target).map((mutant) => mutant.by))];
    const red = redTests(target, by);
    if (red === null || red.length > 0) {
      console.error(`mutants: ${target} fails on the unbroken code: ${red ?? 'it does not compile'}`);
      return chosen.length;
    }
  }
  let wrong = 0;
  for (const { what, file, from, to, target, by } of chosen) {
    const path = join(treeOf({ target }).path, file);
    const whole = readFileSync(path, 'utf8');
    const parts = whole.split(from);
    const begun = Date.now();
    let verdict;
    if (parts.length !== 2) {
      verdict = `STALE: the text to change is there ${parts.length - 1} times`;
    } else {
      const compiled = !file.endsWith('.sql');
      writeFileSync(path, parts.join(to));
      if (compiled) built.clear();
      const red = redTests(target, [by]);
      writeFileSync(path, whole);
      if (compiled) built.clear();
      if (red === null) verdict = 'STALE: the mutant does not compile';
      else if (red.length === 0) verdict = 'SURVIVED';
      else if (!red.some((name) => name.startsWith(by))) verdict = `KILLED BY OTHERS than ${by}: ${red.join(' ')}`;
      else verdict = `killed by ${red.find((name) => name.startsWith(by))}, ${red.length} red`;
    }
    if (!verdict.startsWith('killed')) wrong += 1;
    console.log(`${file}: ${what}: ${verdict} (${Math.round((Date.now() - begun) / 1000)} s)`);
  }
  return wrong;
}

// Of the tests of `target`, all in memory and else those whose names begin with one of `by`, the ones that failed or had
// not ended when the time was up. null: it does not compile.
function redTests(target, by) {
  const [kind, name] = target.split('/');
  const tree = treeOf({ target });
  const executable = built.get(target) ?? build(tree, kind === 'list' ? 'alkstore-tests' : 'alkstore-native', name);
  if (!executable) return null;
  built.set(target, executable);
  const inMemory = target === 'list/mem';
  const filters = inMemory ? [] : by;
  const cwd = join(tree.path, kind === 'list' ? 'tests' : 'native-engines');
  const settings = { cwd, env, encoding: 'utf8', maxBuffer: 1 << 28, killSignal: 'SIGKILL' };
  const listed = spawnSync(executable, ['--list', ...filters], settings).stdout;
  const tests = [...listed.matchAll(/^(\S+): test$/gm)].map(([, path]) => path).filter((path) => inMemory || by.some((start) => last(path).startsWith(start)));
  for (const start of by) if (!tests.some((path) => last(path).startsWith(start))) return [`(no test ${start})`];
  // A mutant may make an engine loop, or a test wait, for ever; in memory a thread for each case, so that none waits
  // behind one that never ends.
  const { stdout } = spawnSync(executable, ['--format=pretty', `--test-threads=${inMemory ? 1000 : 2}`, ...filters], { ...settings, timeout: inMemory ? 30_000 : 60_000 + 60_000 * Math.ceil(tests.length / 4) });
  const green = new Set([...stdout.matchAll(/^test (\S+) \.\.\. ok$/gm)].map(([, path]) => path));
  return tests.filter((path) => !green.has(path)).map(last);
}

function build(tree, package_, name) {
  const { status, stdout, stderr } = spawnSync('cargo', ['test', '--quiet', '-j2', '--no-run', '--message-format=json', '-p', package_, '--test', name], { cwd: tree.path, env, encoding: 'utf8', maxBuffer: 1 << 28 });
  const messages = stdout.split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line));
  const executable = messages.find(({ target, executable }) => executable && target.name === name)?.executable;
  if (status === 0 && executable) return executable;
  for (const { message } of messages) if (message?.level === 'error') console.error(message.rendered);
  console.error(stderr.slice(-3000));
  return null;
}

// One server for all: the tests find it by the environment.
async function serve() {
  if (env.ALKSTORE_PG_URL) return null;
  const executable = build(trees.all, 'alkstore-native', 'mutants_server');
  if (!executable) process.exit(1);
  const child = spawn(executable, ['--nocapture'], { cwd: trees.all.path, env, stdio: ['pipe', 'pipe', 'inherit'] });
  for await (const line of createInterface({ input: child.stdout })) {
    if (line.startsWith('url: ')) {
      env.ALKSTORE_PG_URL = line.slice(5);
      child.stdout.resume();
      return child;
    }
  }
  console.error('mutants: no Postgres: set ALKSTORE_PG_URL, or choose others, as with ONLY=core');
  process.exit(1);
}

// What git knows or would add, of what the tree needs. Files that are the same keep their time stamps, so that a second
// run compiles little.
function copy(tree) {
  rmSync(join(tree.path, 'Cargo.lock'), { force: true });
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard', '--', 'Cargo.lock', 'core', 'mem', ...tree.files], { cwd: root });
  for (const file of listed.toString().split('\0')) {
    if (file && existsSync(join(root, file)) && !OVERWRITTEN.has(file)) put(tree, file, readFileSync(join(root, file)));
  }
  const manifest = readFileSync(join(root, 'Cargo.toml'), 'utf8');
  put(tree, 'Cargo.toml', manifest.replace(/^members = .*$/m, `members = ${JSON.stringify(tree.members)}`));
}

function put(tree, file, text) {
  const to = join(tree.path, file);
  if (existsSync(to) && readFileSync(to).equals(Buffer.from(text))) return;
  mkdirSync(dirname(to), { recursive: true });
  writeFileSync(to, text);
}

function replaced(whole, from, to, file) {
  const parts = whole.split(from);
  if (parts.length === 2) return parts.join(to);
  console.error(`mutants: ${file} has changed: look for ${from}`);
  process.exit(1);
}

function last(path) {
  return path.split('::').at(-1);
}

// What makes mutants worthless: a text that is not there once, a test that is not there, two of one name.
function* stale() {
  const names = testNames();
  const seen = new Set();
  for (const { group, what, file, from, by } of MUTANTS) {
    if (seen.has(what)) yield `two are called: ${what}`;
    seen.add(what);
    const count = readFileSync(join(root, file), 'utf8').split(from).length - 1;
    if (count !== 1) yield `${group}: ${what}: the text to change is in ${file} ${count} times`;
    if (!names.some((name) => name.startsWith(by))) yield `${group}: ${what}: there is no test ${by}`;
  }
}

// The names of all functions in the folders of tests, and in files with unit tests.
function testNames() {
  const names = new Set();
  for (const folder of ['core/tests', 'core/src', 'mem/src', 'mem/tests', 'native-engines/src', 'native-engines/tests', 'tests/src', 'tests/tests']) {
    if (!existsSync(join(root, folder))) continue;
    for (const file of readdirSync(join(root, folder), { recursive: true })) {
      if (!file.endsWith('.rs')) continue;
      const text = readFileSync(join(root, folder, file), 'utf8');
      for (const [, name] of text.matchAll(/\bfn (\w+)/g)) names.add(name);
    }
  }
  return [...names];
}
