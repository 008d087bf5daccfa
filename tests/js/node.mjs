// The conformance list through the npm package in Node.
//
//   node node.mjs LIST_JS PACKAGE
//
// PACKAGE is how the package is imported, from where this file lies: `alkstore`, or a path to its entry.
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { conformance } from './conformance.mjs';

const [listPath, packageName = 'alkstore'] = process.argv.slice(2);
const asModule = (path) => (/^[./]/.test(path) ? pathToFileURL(resolve(path)).href : path);
const list = await import(asModule(resolve(listPath)));
await list.default({ module_or_path: await readFile(listPath.replace(/\.js$/, '_bg.wasm')) });
const { failed } = conformance(await import(asModule(packageName)), list, console.log);
process.exit(failed === 0 ? 0 : 1);
