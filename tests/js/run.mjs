// Runs the conformance list through the npm package.
//
//   node run.mjs node|window|worker LIST_JS PACKAGE_FOLDER
//
// LIST_JS is the list, made as `conformance.mjs` says; PACKAGE_FOLDER is the unpacked or installed package. Window and
// dedicated worker are Chromium's; CHROMIUM names it where the PATH does not have it.
import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, extname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { conformance } from './conformance.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const [place, listPath, packageFolder] = process.argv.slice(2);
const run = { node: inNode, window: inBrowser, worker: inBrowser }[place];
if (!run || !listPath || !packageFolder) {
  console.error('usage: node run.mjs node|window|worker LIST_JS PACKAGE_FOLDER');
  process.exit(2);
}
async function inNode() {
  const load = (path) => import(pathToFileURL(resolve(path)).href);
  const list = await load(listPath);
  await list.default({ module_or_path: await readFile(listPath.replace(/\.js$/, '_bg.wasm')) });
  const { failed } = await conformance(await load(join(packageFolder, 'index.js')), list, console.log);
  return failed;
}

// What the browser is given: the list, the package, and a script that runs in the window or in the worker.
const SCRIPT = `
  import { conformance } from '/js/conformance.mjs';
  import * as list from '/list/${listPath?.split('/').at(-1)}';
  import * as alkstore from '/package/index.js';
  await list.default();
  const lines = [];
  const { failed } = await conformance(alkstore, list, (line) => lines.push(line));
  globalThis.postMessage({ failed, lines });
`;

async function inBrowser() {
  const folders = { js: here, list: dirname(resolve(listPath)), package: resolve(packageFolder) };
  const types = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };
  const server = createServer(async ({ url }, response) => {
    const [, folder, name] = /^\/(\w+)\/([\w.-]+)$/.exec(url) ?? [];
    try {
      if (url === '/') return void response.setHeader('content-type', 'text/html').end('<!doctype html>');
      if (url === '/script.js') return void response.setHeader('content-type', 'text/javascript').end(SCRIPT);
      const body = await readFile(join(folders[folder], name));
      response.setHeader('content-type', types[extname(name)] ?? 'application/octet-stream').end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  const { chromium } = await import('playwright-core').catch(() => import('../../tools/node_modules/playwright-core/index.mjs'));
  const find = 'command -v chromium chromium-browser google-chrome google-chrome-stable | head -n 1';
  const executablePath = process.env.CHROMIUM ?? execFileSync('sh', ['-c', find], { encoding: 'utf8' }).trim();
  // Its sandbox refuses to run as root, as in a container.
  const browser = await chromium.launch({ executablePath, chromiumSandbox: process.getuid() !== 0 });
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    const { failed, lines } = await page.evaluate(
      (inWorker) =>
        new Promise((done, refuse) => {
          const from = inWorker ? new Worker('/script.js', { type: 'module' }) : window;
          from.onmessage = ({ data }) => done(data);
          from.onerror = (event) => refuse(new Error(event.message ?? 'the worker did not start'));
          if (!inWorker) import('/script.js').catch(refuse);
        }),
      place === 'worker',
    );
    for (const line of lines) console.log(line);
    return failed;
  } finally {
    await browser.close();
    server.close();
  }
}

process.exitCode = (await run()) === 0 ? 0 : 1;
