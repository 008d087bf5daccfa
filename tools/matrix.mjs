// Prints which contract ids each engine's conformance run covered, and fails on a gap.
//
//   node tools/matrix.mjs [--dir target/conformance] [--exclude COLUMN=ID,ID...]...
//
// A column is a log file, NAME.log (of native.log each engine, NAME::case); a case is a line that a test runner printed there. The ids are what
// the case's name begins with: `mem::e5_k13_fenced` counts for E5 and K13. A case of bad input or of errors
// has no id and is a row of its own: `bad_name_empty`, `errors_have_a_source`. COLUMN and ID may hold `*`. Every id must be in every column
// but for what is excluded, and every case must be ok: one that is skipped covers nothing.
import { readFileSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';

let dir = 'target/conformance';
const excluded = [];
for (let args = process.argv.slice(2); args.length > 0; args = args.slice(2)) {
  const [flag, value = ''] = args;
  const rule = /^([^=]+)=(.+)$/.exec(value);
  if (flag === '--dir' && value) dir = value;
  else if (flag === '--exclude' && rule) excluded.push(...rule[2].split(',').map((id) => ({ column: rule[1], id, used: false })));
  else stop(`cannot read '${flag} ${value}'`);
}

function stop(...lines) {
  for (const line of lines) console.error(`conformance: ${line}`);
  process.exit(1);
}

// { name, ok } of a line by libtest or wasm-bindgen's runner, or by node's in TAP; else null.
function parse(line) {
  const rust = /^test (\S+)(?: - should panic)? \.\.\. (\w+)/.exec(line);
  if (rust) {
    const path = rust[1].split('::');
    return { name: path.at(-1), engine: path.length > 1 ? path[0] : null, ok: rust[2] === 'ok' };
  }
  const tap = /^\s*(not )?ok \d+ - (.*?)( # (?:SKIP|TODO)\b.*)?$/.exec(line);
  return tap && { name: tap[2], ok: !tap[1] && !tap[3] };
}

function ids(name) {
  const row = /^(?:bad|errors)_\w+/i.exec(name);
  if (row) return [row[0].toLowerCase()];
  const leading = /^(?:[a-z]\d{1,2}(?=[_\W]|$)[_\W]*)+/i.exec(name);
  return leading ? [...new Set(leading[0].toUpperCase().match(/[A-Z]\d+/g))] : [];
}

const matches = (pattern, text) =>
  new RegExp(`^${pattern.split('*').map((part) => part.replace(/[.\\+?^${}()|[\]]/g, '\\$&')).join('.*')}$`, 'i').test(text);

const columns = new Map(); // column -> id -> number of cases that are ok
const problems = [];
let files = [];
try {
  files = readdirSync(dir).filter((file) => file.endsWith('.log')).sort();
} catch {
  // Reported just below, like an empty folder.
}
if (files.length === 0) stop(`no logs in ${dir}: run 'make test' first`);

for (const file of files) {
  const log = basename(file, '.log');
  let any = false;
  for (const line of readFileSync(join(dir, file), 'utf8').split(/\r?\n/)) {
    const found = parse(line);
    // The native run holds several engines: each is a column, named by the module of its cases.
    const column = log === 'native' ? found?.engine : log;
    for (const id of found && column ? ids(found.name) : []) {
      any = true;
      if (!columns.has(column)) columns.set(column, new Map());
      const counts = columns.get(column);
      if (found.ok) counts.set(id, (counts.get(id) ?? 0) + 1);
      else problems.push(`${column}: ${found.name} is not ok`);
    }
  }
  if (!any) problems.push(`${log}: no case with an id`);
}

const order = (a, b) => a.localeCompare(b, 'en', { numeric: true });
const rows = [...new Set([...columns.values()].flatMap((counts) => [...counts.keys()]))];
rows.sort((a, b) => a.includes('_') - b.includes('_') || order(a, b));

const names = [...columns.keys()];
const first = Math.max(5, ...rows.map((id) => id.length)) + 2;
const print = (head, cells) => console.log(head.padEnd(first) + cells.map((cell, at) => String(cell).padStart(names[at].length + 2)).join(''));
print('id', names);
for (const id of rows) {
  print(id, names.map((column) => {
    const count = columns.get(column).get(id);
    const rules = excluded.filter((rule) => matches(rule.column, column) && matches(rule.id, id));
    // A rule that hides what is covered would one day hide what is not.
    if (count && rules.length > 0) problems.push(`${column}: ${id} is covered, so take it off the exclusions`);
    for (const rule of rules) rule.used = true;
    if (!count && rules.length === 0) problems.push(`${column}: no case for ${id}`);
    return count ?? (rules.length > 0 ? '-' : 'NONE');
  }));
}
print('ids', names.map((column) => columns.get(column).size));
print('cases', names.map((column) => [...columns.get(column).values()].reduce((sum, count) => sum + count, 0)));

for (const rule of excluded) if (!rule.used) problems.push(`the exclusion ${rule.column}=${rule.id} excludes nothing`);
if (problems.length > 0) stop(...problems);
