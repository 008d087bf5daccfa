// The lease lab in Chromium, as a visitor uses it: the story end to end, by mouse and by keyboard, in both themes and at
// two widths. The screenshots stay in target/www.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { preview } from 'vite';

const root = fileURLToPath(new URL('..', import.meta.url));
const shots = fileURLToPath(new URL('../../target/www/', import.meta.url));
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
let server;
let browser;
let origin;

before(async () => {
  mkdirSync(shots, { recursive: true });
  server = await preview({ root, logLevel: 'warn', preview: { host: '127.0.0.1', port: 0 } });
  origin = `http://127.0.0.1:${server.httpServer.address().port}/`;
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
});

after(async () => {
  await browser?.close();
  await server?.close();
});

/** Opens the page; at the end nothing may have been complained of, or asked from elsewhere. */
async function visit(options, story) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  const wrong = [];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && wrong.push(message.text()));
  page.on('pageerror', (error) => wrong.push(String(error)));
  page.on('request', (request) => request.url().startsWith(origin) || wrong.push(`asked for ${request.url()}`));
  await page.goto(origin);
  await page.getByRole('heading', { name: 'The lease lab' }).waitFor();
  await story(page);
  assert.deepEqual(wrong.filter((text) => !text.startsWith('asked for blob:')), []);
  await context.close();
}

const press = (page, name) => page.getByRole('button', { name, exact: true }).click();
const said = (page, text) => page.locator('#main').getByText(text).first().waitFor();

test('a stale writer is refused by its token, and not without it', async () => {
  await visit({}, async (page) => {
    const report = page.locator('[data-test=report]');
    await press(page, 'North takes the lease');
    await press(page, 'North stalls for 7 seconds');
    await press(page, 'South takes over and writes');
    await report.getByText('by South, complete').waitFor();
    await press(page, 'North writes with its token');
    await said(page, /LEASE_LOST/);
    assert.match(await report.innerText(), /by South, complete/);
    await press(page, 'North writes without it');
    await report.getByText('by North, out of date').waitFor();
  });
});

test('a blob goes from staged to due to taken, unless it is published again', async () => {
  await visit({}, async (page) => {
    await page.getByRole('radio', { name: 'Manual clock' }).check();
    await press(page, 'Stage a blob');
    await said(page, 'blob/1 has no reference left: it is due in 10 seconds');
    await press(page, 'Take what is due');
    await said(page, 'Nothing is due');
    await press(page, 'Stage a blob');
    await said(page, 'blob/2 has no reference left: it is due in 10 seconds');
    await page.getByRole('button', { name: 'Publish blob/1 again' }).click();
    await said(page, 'blob/1 is published again, and left the window in the same step');
    await page.getByRole('button', { name: 'Move the clock 20 s forward' }).click();
    await press(page, 'Take what is due');
    await said(page, 'Taken and deleted: blob/2');
    assert.equal(await page.locator('[data-test=window-count]').innerText(), '0');
  });
});

test('a frozen owner loses its lease, and another takes over', async () => {
  await visit({}, async (page) => {
    const clock = page.locator('[data-test=store-clock]');
    await page.getByRole('button', { name: /^Freeze/ }).first().click();
    const before = parseFloat(await clock.innerText());
    for (let step = 0; step < 3; step++) await page.getByRole('button', { name: 'Move the clock 5 s forward' }).click();
    assert.ok(parseFloat(await clock.innerText()) >= before + 15);
    await said(page, /Cleo took .* with token \d+/);
    await page.getByRole('button', { name: 'Add an owner' }).click();
    await page.getByRole('button', { name: /^Kill/ }).last().click();
  });
});

test('a snapshot goes to a file and comes back', async () => {
  await visit({ acceptDownloads: true }, async (page) => {
    const download = page.waitForEvent('download');
    await press(page, 'Save a snapshot');
    const file = await (await download).path();
    assert.equal(readFileSync(file).subarray(0, 7).toString(), 'ALKSNAP');
    const broken = Buffer.from(readFileSync(file));
    broken[broken.length - 1] ^= 1;
    const input = page.locator('input[type=file]');
    await input.setInputFiles({ name: 'broken.alksnap', mimeType: 'application/octet-stream', buffer: broken });
    await said(page, /SNAPSHOT/);
    await input.setInputFiles(file);
    await said(page, /[Rr]estored/);
  });
});

test('the keyboard reaches every control, and shows where it is', async () => {
  await visit({}, async (page) => {
    const reached = new Set();
    for (let tab = 0; tab < 90; tab++) {
      await page.keyboard.press('Tab');
      const at = await page.evaluate(() => {
        const { activeElement: element } = document;
        if (element === document.body) return null; // round the end of the page
        const style = getComputedStyle(element);
        const shown = style.outlineStyle !== 'none' || style.boxShadow !== 'none' || element.matches('input[type=radio], input[type=file]');
        return { name: element.innerText?.trim() || element.getAttribute('aria-label') || element.type || '', shown };
      });
      if (at === null) continue;
      assert.ok(at.shown, `the focus on "${at.name}" can be seen`);
      reached.add(at.name);
    }
    for (const name of ['Skip to the lab', 'Add an owner', 'North takes the lease', 'Stage a blob', 'Save a snapshot']) {
      assert.ok(reached.has(name), `${name} is reached; reached were ${[...reached].join(', ')}`);
    }
  });
});

for (const theme of ['light', 'dark']) {
  for (const width of [1280, 390]) {
    test(`${theme}, ${width} wide: nothing that axe minds, no sideways scrolling`, async () => {
      await visit({ viewport: { width, height: 900 }, colorScheme: theme, reducedMotion: 'reduce' }, async (page) => {
        await page.getByRole('radio', { name: 'Manual clock' }).check();
        await page.getByRole('button', { name: 'Move the clock 5 s forward' }).click();
        await page.screenshot({ path: `${shots}lab-${theme}-${width}.png`, fullPage: true });
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
        // Evaluated by the debugger, which the page's policy does not bind.
        await page.evaluate(axe);
        const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
        assert.deepEqual(found.violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`), []);
      });
    });
  }
}

test('the narrowest phone does not scroll sideways', async () => {
  await visit({ viewport: { width: 360, height: 740 } }, async (page) => {
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  });
});
