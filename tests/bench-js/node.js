// The benchmark in Node. Writes node.json into the folder that `BENCH_OUT` names.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './jobs.js';
import { Table } from './measure.js';

const folder = process.env.BENCH_OUT ?? 'target/bench';
const table = new Table('node', process.env.BENCH === 'full', (line) => console.error(`  ${line}`));
await run(table, { handle: 2.5, heap });
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, 'node.json'), JSON.stringify(table.rows, null, 2));
// Some peers keep timers.
process.exit(0);

function heap() {
  globalThis.gc();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}
