// The benchmark in a page: `bench(full, say)` answers the rows.
import { run } from './jobs.js';
import { Table } from './measure.js';

globalThis.bench = async (full, say) => {
  const table = new Table('chromium', full, say);
  await run(table, { handle: 2, locks: navigator.locks });
  return table.rows;
};
