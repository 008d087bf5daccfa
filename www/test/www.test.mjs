// The lease lab in Chromium, as `vite build` left it in www/dist: what a person does there, with a pointer and without.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import test, { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { preview } from 'vite';
import { CSP } from '../vite.config.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const shots = fileURLToPath(new URL('../../target/www/', import.meta.url));
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let server;
let browser;
let url;

before(async () => {
  mkdirSync(shots, { recursive: true });
  server = await preview({ root, logLevel: 'warn', preview: { host: '127.0.0.1', port: 0 } });
  url = `http://127.0.0.1:${server.httpServer.address().port}/`;
  const find = 'command -v chromium chromium-browser google-chrome google-chrome-stable chrome | head -n 1';
  const quiet = ['gpu', 'quic', 'background-networking', 'component-update', 'sync'].map((what) => `--disable-${what}`);
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? execFileSync('sh', ['-c', find], { encoding: 'utf8' }).trim(),
    args: [...quiet, '--no-first-run'],
    // Its sandbox refuses to run as root, as in a container.
    chromiumSandbox: process.getuid() !== 0,
  });
});

after(async () => {
  await browser?.close();
  await server?.close();
});

/** Runs `work` in a page of its own, whose clock stands unless told otherwise. Any complaint of the page fails the test. */
async function lab(work, { manual = true, prepare, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  const problems = [];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && problems.push(message.text()));
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('blob:')) problems.push(`a request to ${request.url()}`);
  });
  await prepare?.(page);
  try {
    await page.goto(url);
    await page.getByRole('heading', { name: 'The lease lab' }).waitFor();
    if (manual) await page.getByRole('radio', { name: 'Manual clock' }).check();
    await work(page);
    assert.deepEqual(problems, []);
  } finally {
    await context.close();
  }
}

const press = (page, name) => page.getByRole('button', { name, exact: typeof name === 'string' }).first().click();
const forward = (page, seconds) => press(page, `Move the clock ${seconds} s forward`);
const owner = (page, name) => page.locator(`tr[data-owner="${name}"]`);
const holder = (page) => page.locator('tr[data-owner]', { has: page.locator('td', { hasText: /^holds$/ }) }).first();
const stored = async (page) => Number.parseFloat(await page.locator('[data-test="store-clock"]').innerText());

/** Waits until a page says so: it draws ten times a second. */
async function sees(page, locator, text) {
  const deadline = Date.now() + 8_000;
  let seen;
  do {
    seen = await locator.allInnerTexts();
    if (seen.some((found) => (text instanceof RegExp ? text.test(found) : found.includes(text)))) return;
    await page.waitForTimeout(30);
  } while (Date.now() < deadline);
  assert.fail(`${text} is not in ${JSON.stringify(seen)}`);
}

/** Someone holds a lock; who, and which. */
async function someHolder(page) {
  await forward(page, 1);
  await sees(page, page.locator('tr[data-owner]'), /holds/);
  const row = holder(page);
  return { name: await row.getAttribute('data-owner'), lock: await row.locator('td').nth(1).innerText() };
}

/** Until another owner than this one holds the lock, a second at a time. */
async function taken(page, lock, name) {
  for (let turns = 0; turns < 40; turns += 1) {
    await forward(page, 1);
    const rows = await page.locator('table.rows tbody tr').allInnerTexts();
    const row = rows.find((found) => found.startsWith(lock));
    if (row && !row.includes(name) && !row.includes('lapsed')) return;
  }
  assert.fail(`nobody took ${lock} over from ${name}`);
}

test('a frozen holder lapses, another takes over, and the thawed one is refused', () =>
  lab(async (page) => {
    const { name, lock } = await someHolder(page);
    await press(page, `Freeze ${name}`);
    await sees(page, owner(page, name), 'frozen while it holds');
    await taken(page, lock, name);
    await sees(page, owner(page, name), 'frozen; its lease has lapsed');
    assert.ok((await page.locator('.gantt .lapsed').count()) >= 1);
    await press(page, `Thaw ${name}`);
    await forward(page, 1);
    await sees(page, page.locator('.events li'), new RegExp(`${name} lost ${lock}: token \\d+ is refused with LEASE_LOST`));
    await sees(page, page.getByRole('status'), `${name} lost ${lock}`);
    assert.equal(await page.locator('.gantt .lost').count(), 1);
    await page.getByText('The timeline as a table').click();
    for (const word of ['held', 'waited', 'lapsed', 'lost']) await sees(page, page.locator('details tbody tr'), word);
  }));

test('owners are added, killed and removed; nobody releases for the dead', () =>
  lab(async (page) => {
    await press(page, 'Add an owner');
    await sees(page, page.getByRole('status'), 'Dora joins');
    for (let more = 0; more < 4; more += 1) await press(page, 'Add an owner');
    assert.equal(await page.locator('tr[data-owner]').count(), 8);
    const { name, lock } = await someHolder(page);
    await press(page, `Kill ${name}`);
    await sees(page, owner(page, name), 'killed');
    await sees(page, page.locator('table.rows tbody tr'), new RegExp(`${lock}[\\s\\S]*${name}`));
    await taken(page, lock, name);
    await press(page, `Remove ${name}`);
    assert.equal(await owner(page, name).count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Add an owner');
  }));

test('the real clock runs, the manual one stands, and is scrubbed forward but not back', () =>
  lab(
    async (page) => {
      await page.clock.runFor(3_000);
      assert.ok((await stored(page)) >= 2.8);
      await page.getByRole('radio', { name: 'Manual clock' }).check();
      const stood = await stored(page);
      await page.clock.runFor(5_000);
      assert.equal(await stored(page), stood);

      const thumb = page.getByRole('slider');
      await thumb.fill('40');
      await page.clock.runFor(200);
      assert.equal(await stored(page), 40);
      await thumb.fill('10');
      await page.clock.runFor(200);
      assert.equal(await stored(page), 40);
      assert.equal(Number(await thumb.inputValue()), 40);
      await page.getByText('never sees its time run back').waitFor();

      await page.getByRole('radio', { name: 'Real clock' }).check();
      await page.clock.runFor(2_000);
      assert.ok((await stored(page)) >= 41.5);
    },
    { manual: false, prepare: (page) => page.clock.install() },
  ));

test('left alone for a minute, owners share the locks and the live region is silent', () =>
  lab(
    async (page) => {
      await page.evaluate(() => {
        globalThis.heard = 0;
        new MutationObserver(() => (globalThis.heard += 1)).observe(document.querySelector('[role=status]'), { childList: true, characterData: true, subtree: true });
      });
      await page.clock.runFor(60_000);
      await sees(page, page.locator('.events li'), 'wrote and released');
      assert.equal(await page.evaluate(() => globalThis.heard), 0);
      assert.equal(await page.locator('.gantt .lost, .gantt .lapsed').count(), 0);
    },
    { manual: false, prepare: (page) => page.clock.install() },
  ));

test('with reduced motion the page moves once a second', () =>
  lab(
    async (page) => {
      await page.evaluate(() => {
        globalThis.drawn = 0;
        new MutationObserver(() => (globalThis.drawn += 1)).observe(document.querySelector('[data-test="store-clock"]'), { childList: true, characterData: true, subtree: true });
      });
      await page.clock.runFor(5_000);
      const drawn = await page.evaluate(() => globalThis.drawn);
      assert.ok(drawn >= 4 && drawn <= 6, `${drawn} times in 5 s`);
    },
    { manual: false, reducedMotion: 'reduce', prepare: (page) => page.clock.install() },
  ));

async function staleWriter(page) {
  await press(page, 'North takes the lease');
  await sees(page, page.locator('#fence .said'), 'North holds report');
  await press(page, 'North stalls for 7 seconds');
  await sees(page, page.locator('#fence .said'), 'lapsed');
  await press(page, 'South takes over and writes');
  await sees(page, page.locator('[data-test="report"]'), 'by South, complete');
}

test('a stale writer is refused by its token, and spoils the report without it', () =>
  lab(async (page) => {
    await staleWriter(page);
    const before = await page.locator('[data-test="report"]').innerText();
    await press(page, 'North writes with its token');
    await sees(page, page.locator('#fence .said'), /LEASE_LOST: .*South’s report stands/);
    assert.equal(await page.locator('[data-test="report"]').innerText(), before);
    await press(page, 'North writes without it');
    await sees(page, page.locator('[data-test="report"]'), 'by North, out of date');
    await press(page, 'Start again');
    await sees(page, page.locator('[data-test="report"]'), 'nothing yet');
    await staleWriter(page);
  }));

test('entries: the first writer wins, they lapse, are prolonged and deleted', () =>
  lab(async (page) => {
    const row = page.locator('tr[data-entry="session/ada"]');
    const said = page.locator('#entries .said');
    await press(page, 'Create');
    await sees(page, row, 'signed in');
    await page.getByLabel('Value').fill('somebody else');
    await press(page, 'Create');
    await sees(page, said, 'the first writer has won');
    await sees(page, row, 'signed in');
    await press(page, 'Give session/ada 20 s');
    await forward(page, 5);
    await forward(page, 5);
    await sees(page, row, '10.0 s');
    await forward(page, 20);
    await row.waitFor({ state: 'detached' });
    await press(page, 'Create');
    await sees(page, row, 'somebody else');
    await press(page, 'Delete session/ada');
    await row.waitFor({ state: 'detached' });
    await page.getByLabel('Key').fill('no deadline');
    await page.getByLabel('Lapses after').selectOption('never');
    await press(page, 'Create');
    await sees(page, page.locator('tr[data-entry="no deadline"]'), 'for ever');
  }));

test('the window: staged, rescued, due, taken', () =>
  lab(async (page) => {
    const lane = (title) => page.locator('.lane > div', { has: page.getByRole('heading', { name: title }) });
    const said = page.locator('#window .said');
    for (const number of [1, 2, 3]) {
      await press(page, 'Stage a blob');
      await sees(page, lane('Staged'), `blob/${number}`);
    }
    await press(page, 'Take what is due');
    await sees(page, said, 'Nothing is due');
    await press(page, 'Publish again: blob/2');
    await sees(page, said, 'blob/2 is published again');
    await sees(page, page.locator('[data-test="window-count"]'), '2');
    await forward(page, 20);
    await sees(page, lane('Due'), 'blob/1');
    await press(page, 'Take what is due');
    await sees(page, lane('Taken'), /blob\/1[\s\S]*blob\/3/);
    await sees(page, said, 'Taken and deleted: blob/1, blob/3');
    await sees(page, page.locator('[data-test="window-count"]'), '0');
    assert.equal(await page.locator('tr[data-entry="blob/1"]').count(), 0);
    assert.equal(await page.locator('tr[data-entry="blob/2"]').count(), 1);
  }));

test('a snapshot goes to a file and comes back; a damaged one changes nothing', () =>
  lab(async (page) => {
    await press(page, 'Create');
    await press(page, 'Stage a blob');
    await sees(page, page.locator('.lane'), 'blob/1');
    const [download] = await Promise.all([page.waitForEvent('download'), press(page, 'Save a snapshot')]);
    assert.equal(download.suggestedFilename(), 'lease-lab.alkstore');
    const bytes = readFileSync(await download.path());
    const said = page.locator('#snapshot .said');
    await sees(page, said, `Saved ${bytes.length.toLocaleString('en')} bytes`);

    await press(page, 'Delete session/ada');
    await press(page, 'Publish again: blob/1');
    await sees(page, page.locator('[data-test="window-count"]'), '0');
    const load = (buffer) => page.getByLabel('Restore from a file').setInputFiles({ name: 'lab', mimeType: 'application/octet-stream', buffer });
    const damaged = Buffer.from(bytes);
    damaged[damaged.length >> 1] ^= 1;
    await load(damaged);
    await sees(page, said, 'SNAPSHOT:');
    assert.equal(await page.locator('tr[data-entry="session/ada"]').count(), 0);

    await load(bytes);
    await sees(page, said, 'lab is restored');
    await sees(page, page.locator('tr[data-entry="session/ada"]'), 'signed in');
    await sees(page, page.locator('.lane'), 'blob/1');
    // Tokens go on far above those of the snapshot.
    await taken(page, 'printer', 'nobody');
    await forward(page, 20);
    await sees(page, page.locator('table.rows tbody tr'), /\b\d{10,}\b/);
  }));

test('the whole of it by keyboard', () =>
  lab(async (page) => {
    const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent);
    const tab = async (name) => {
      for (let presses = 0; presses < 120; presses += 1) {
        await page.keyboard.press('Tab');
        if ((await focused()) === name) {
          // What has the focus must show it, and not lie under the bar at the top.
          const shown = await page.evaluate(() => {
            const { outlineStyle } = getComputedStyle(document.activeElement);
            const { top, bottom } = document.activeElement.getBoundingClientRect();
            return outlineStyle !== 'none' && top >= document.querySelector('.top').getBoundingClientRect().bottom - 1 && bottom <= innerHeight + 1;
          });
          if (!['Skip to the lab'].includes(name)) assert.ok(shown, `${name} shows its focus`);
          return;
        }
      }
      assert.fail(`Tab never comes to ${name}`);
    };
    await tab('Skip to the lab');
    await page.keyboard.press('Enter');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.type), 'radio');
    await page.keyboard.press('ArrowRight');
    await sees(page, page.getByRole('status'), 'The clock stands');
    await tab('Move the clock 1 s forward');
    await page.keyboard.press('Space');
    const before = await stored(page);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.type), 'range');
    for (let presses = 0; presses < 5; presses += 1) await page.keyboard.press('ArrowRight');
    await sees(page, page.locator('[data-test="store-clock"]'), new RegExp(`^${(before + 0.5).toFixed(1)} s$`));
    const name = await holder(page).getAttribute('data-owner');
    await tab(`Freeze ${name}`);
    await page.keyboard.press('Space');
    await sees(page, page.getByRole('status'), `${name} freezes`);
    assert.equal(await focused(), `Thaw ${name}`);
    await tab('North takes the lease');
    await page.keyboard.press('Enter');
    await sees(page, page.getByRole('status'), 'North holds report');
    assert.equal(await focused(), 'North takes the lease');
    await tab('North stalls for 7 seconds');
    await page.keyboard.press('Enter');
    await tab('South takes over and writes');
    await page.keyboard.press('Enter');
    await sees(page, page.getByRole('status'), 'South got token');
    await tab('North writes with its token');
    await page.keyboard.press('Enter');
    await sees(page, page.getByRole('status'), 'LEASE_LOST');
    await tab('Create');
    await page.keyboard.press('Enter');
    await sees(page, page.getByRole('status'), 'session/ada is stored');
    await tab('Stage a blob');
    await page.keyboard.press('Space');
    await sees(page, page.getByRole('status'), 'blob/1');
  }, { manual: false }));

test('the code beside the controls is what runs, and is copied', () =>
  lab(
    async (page) => {
      const source = readFileSync(new URL('../src/run.js', import.meta.url), 'utf8');
      const shown = await page.locator('.bench .code code').allTextContents();
      const functions = source.match(/^export async function \w+/gm);
      assert.equal(shown.length, functions.length);
      for (const code of shown) assert.ok(source.includes(`export ${code}`), code);
      assert.ok((await page.locator('.code .hljs-keyword').count()) > 20);
      await press(page, 'Copy: An owner takes a lock');
      await sees(page, page.getByRole('status'), 'Copied');
      assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^async function acquire/);
    },
    { permissions: ['clipboard-read', 'clipboard-write'] },
  ));

test('the theme follows the system, is chosen with the button, and is remembered', () =>
  lab(
    async (page) => {
      const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const dark = await paper();
      await press(page, 'Light theme');
      const light = await paper();
      assert.notEqual(light, dark);
      await page.reload();
      await page.getByRole('button', { name: 'Dark theme' }).waitFor();
      assert.equal(await paper(), light);
      await page.emulateMedia({ colorScheme: 'light' });
      await press(page, 'Dark theme');
      assert.equal(await paper(), dark);
    },
    { colorScheme: 'dark' },
  ));

test('the policy is strict, in the page, in the headers and in the README', async () => {
  const response = await fetch(url);
  assert.equal(response.headers.get('content-security-policy'), `${CSP}; frame-ancestors 'none'`);
  const html = (await response.text()).replaceAll('&#39;', "'");
  assert.ok(html.includes(`<meta http-equiv="Content-Security-Policy" content="${CSP}">`));
  assert.doesNotMatch(html, /style=|<style|<script(?![^>]*src=)/);
  assert.ok(readFileSync(new URL('../README.md', import.meta.url), 'utf8').includes(CSP));
  assert.match(CSP, /^default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; /);
  assert.doesNotMatch(CSP, /unsafe-inline|'unsafe-eval'|data:|\*/);
});

test('where WebAssembly is forbidden, the page says what to allow', async () => {
  const page = await browser.newPage();
  try {
    await page.route(url, async (route) => {
      const response = await route.fetch();
      const without = (text) => text.replace(/ (?:'|&#39;)wasm-unsafe-eval(?:'|&#39;)/, '');
      const headers = response.headers();
      headers['content-security-policy'] = without(headers['content-security-policy']);
      await route.fulfill({ response, headers, body: without(await response.text()) });
    });
    await page.goto(url);
    await sees(page, page.getByRole('alert'), /could not start.*wasm-unsafe-eval/);
  } finally {
    await page.close();
  }
});

for (const width of [1280, 390]) {
  for (const colorScheme of ['light', 'dark']) {
    test(`${width} px, ${colorScheme}: axe finds nothing, nothing sticks out, and a picture is kept`, () =>
      lab(
        async (page) => {
          const { name, lock } = await someHolder(page);
          await press(page, `Freeze ${name}`);
          await taken(page, lock, name);
          await press(page, `Thaw ${name}`);
          await forward(page, 5);
          await staleWriter(page);
          await press(page, 'North writes with its token');
          await press(page, 'Create');
          await press(page, 'Stage a blob');
          await forward(page, 20);
          await press(page, 'Stage a blob');
          await sees(page, page.locator('.lane'), 'blob/2');
          await press(page, 'Create');
          await sees(page, page.locator('#entries .said'), 'stored');
          await page.getByText('The timeline as a table').click();
          for (const narrow of width === 390 ? [390, 360, 320] : [1280, 1024, 768]) {
            await page.setViewportSize({ width: narrow, height: 900 });
            const wide = await page.evaluate(() => {
              const { scrollWidth } = document.documentElement;
              const beyond = (element) => element.getBoundingClientRect().right > innerWidth && !element.closest('pre, nav, .scroll');
              return { scrollWidth, beyond: scrollWidth > innerWidth ? [...document.querySelectorAll('main *')].filter(beyond).map((element) => element.outerHTML.slice(0, 80)) : [] };
            });
            assert.deepEqual(wide, { scrollWidth: narrow, beyond: [] });
          }
          await page.setViewportSize({ width, height: 900 });

          // Evaluated by the debugger, which the page's policy does not bind.
          await page.evaluate(axe);
          const { passes, violations } = await page.evaluate(() => globalThis.axe.run(document));
          assert.ok(passes.length > 20);
          assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target).join(' | ')}`), []);

          await page.getByText('The timeline as a table').click();
          await page.evaluate(() => {
            document.activeElement.blur();
            scrollTo(0, 0);
          });
          await page.screenshot({ path: `${shots}${width}-${colorScheme}.png`, fullPage: true });
          await page.screenshot({ path: `${shots}${width}-${colorScheme}-top.png` });
        },
        { colorScheme, viewport: { width, height: 900 } },
      ));
  }
}
