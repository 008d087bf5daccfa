// What docs/safe-deletion.md says about tests and mutants must be so.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const FILE = 'docs/safe-deletion.md';
const RACES = 22;

// In the guide every name in backticks that looks like a test's is one. In the table of races, whose lines begin with the
// number of the race, mutants stand in *asterisks* in the last column, and one of the tests of the same line kills each.
export function* wrongIn(root, mutants, names) {
  const text = readFileSync(join(root, FILE), 'utf8');
  const known = new Set(names);
  for (const test of testsIn(text)) if (!known.has(test)) yield `${FILE}: there is no test ${test}`;

  const rows = new Map([...text.matchAll(/^\| R(\d+) \|(.*)$/gm)].map(([, number, line]) => [Number(number), line]));
  for (let number = 1; number <= RACES; number += 1) {
    const cells = rows.get(number)?.split(/(?<!\\)\|/) ?? [];
    const tests = testsIn(cells.join('|'));
    if (tests.length === 0) yield `${FILE}: R${number} has no test`;
    const named = [...(cells.at(-2) ?? '').matchAll(/\*([^*]+)\*/g)].map(([, name]) => name);
    if (named.length === 0) yield `${FILE}: R${number} has no mutant`;
    for (const name of named) {
      const mutant = mutants.find(({ what }) => what === name);
      if (!mutant) yield `${FILE}: R${number}: there is no mutant *${name}*`;
      else if (!tests.some((test) => test.startsWith(mutant.by))) yield `${FILE}: R${number}: *${name}* is killed by ${mutant.by}, which the line does not name`;
    }
  }
}

function testsIn(text) {
  return [...text.matchAll(/`(?:\w+::)*(\w+)`/g)].map(([, name]) => name).filter((name) => /^[a-z]\d+_|^\w+(_\w+){4}$/.test(name));
}
