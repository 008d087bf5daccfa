// The demo's counts against a computation of their own over the same folder, and its clear errors.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { LIMITS, list, read } from './folder.mjs';
import { meter, short, wrap } from './screen.mjs';

const DEMO = fileURLToPath(new URL('demo.mjs', import.meta.url));
const room = mkdtempSync(join(tmpdir(), 'alkstore-demo-'));
after(() => rmSync(room, { recursive: true, force: true }));

function demo(...args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [DEMO, ...args], { encoding: 'utf8', env: { ...process.env, COLUMNS: '80' } });
  return { status, stdout, stderr };
}

/** A folder with duplicates, an empty file, odd names, and what must be left out. */
function fixture(name, files) {
  const folder = join(room, name);
  mkdirSync(join(folder, 'deep/er'), { recursive: true });
  for (let index = 0; index < files; index += 1) {
    // Every fourth content is there twice or more; sizes from nothing to some kilobytes.
    const content = index % 4 === 0 ? 'the same\n'.repeat(index % 3) : `${index}\n`.repeat(index * 7);
    writeFileSync(join(folder, ['', 'deep', 'deep/er'][index % 3], `${index} é\n'.txt`), content);
  }
  return folder;
}

/** The same numbers without any of the demo's code. */
function expected(folder) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .filter((path) => statSync(path).size <= 64 * 2 ** 20);
  const sizes = new Map();
  let bytes = 0;
  for (const path of files) {
    const content = readFileSync(path);
    bytes += content.length;
    sizes.set(createHash('sha256').update(content).digest('hex'), content.length);
  }
  const distinctBytes = [...sizes.values()].reduce((sum, size) => sum + size, 0);
  return {
    files: files.length,
    bytes,
    distinct: sizes.size,
    distinctBytes,
    duplicates: files.length - sizes.size,
    duplicateBytes: bytes - distinctBytes,
  };
}

test('the counts are those of the folder, and add up', () => {
  const folder = fixture('many', 100);
  symlinkSync(folder, join(folder, 'loop'));
  writeFileSync(join(folder, 'large'), '');
  truncateSync(join(folder, 'large'), 64 * 2 ** 20 + 1);
  const { status, stdout, stderr } = demo(folder, '--json');
  assert.equal(stderr, '');
  assert.equal(status, 0);
  const { read: counted, checks, stalled, shards, leases, fenced, window, snapshot } = JSON.parse(stdout);
  assert.deepEqual(counted, { ...expected(folder), skipped: 2, stopped: false });
  assert.ok(counted.duplicates > 20);
  assert.ok(checks.length >= 16 && checks.every(({ holds }) => holds));
  assert.deepEqual(shards, { dealt: 12, done: 12 });
  assert.equal(leases.granted, 13);
  assert.ok(leases.losing > 0 && leases.renewed > 0);
  assert.equal(fenced.refused, 1);
  assert.equal(stalled.refused, 'LEASE_LOST');
  assert.ok(stalled.successor.token > stalled.token);
  assert.deepEqual([stalled.stands, stalled.renewed, stalled.released], [true, false, false]);
  assert.equal(window.dropped, 35);
  assert.ok(window.taken > 10 && window.shared > 0 && window.rescued === 1 && window.waiting === 1);
  assert.deepEqual([window.early, window.whileClaimed, window.pinned, window.spared, window.foretold], [0, 0, 1, 1, true]);
  assert.deepEqual([snapshot.equal, snapshot.contended, snapshot.renewed, snapshot.window], [true, true, true, 1]);
});

test('the story is the same for one file, and when it is told again', () => {
  const one = join(room, 'one');
  mkdirSync(one);
  writeFileSync(join(one, 'a'), 'a');
  for (const folder of [one, fixture('few', 9)]) {
    const [first, second] = [demo(folder, '--json'), demo(folder, '--json')];
    assert.equal(first.status, 0, first.stderr);
    assert.equal(first.stdout, second.stdout);
    assert.deepEqual(JSON.parse(first.stdout).read, { ...expected(folder), skipped: 0, stopped: false });
  }
});

test('what it prints has the summary, no colour in a pipe, and fits the width', () => {
  const { status, stdout } = demo(fixture('printed', 30));
  assert.equal(status, 0);
  assert.match(stdout, /ben +wakes and writes with its old token \d+: LEASE_LOST/);
  assert.match(stdout, /a dry run foretells: of \d+ that are due \d+ would go/);
  assert.match(stdout, /the sweep deletes \d+ \(.+\) and spares 1, as\s+foretold/);
  assert.match(stdout, /✓ files = distinct contents \+ duplicates {2}30 = 30/);
  assert.doesNotMatch(stdout, /^ {2}✗/m);
  assert.ok(!stdout.includes('\x1b'));
  const names = new RegExp(room);
  for (const line of stdout.split('\n')) assert.ok(line.length <= 80 || names.test(line), line);
});

test('whatever cannot be used is told in one line', () => {
  const empty = join(room, 'empty');
  const links = join(room, 'links');
  mkdirSync(empty);
  mkdirSync(links);
  symlinkSync(empty, join(links, 'link'));
  for (const [args, status, message] of [
    [[join(room, 'absent')], 1, /there is no folder .*absent/],
    [[DEMO], 1, /is a file: give the folder/],
    [[empty], 1, /has no files/],
    [[links], 1, /has no file that can be used: 1 × link/],
    [[empty, links], 2, /one folder at a time/],
    [['--colour'], 2, /--colour/],
  ]) {
    const told = demo(...args);
    assert.equal(told.status, status, message);
    assert.match(told.stderr, message);
    assert.equal(told.stderr.trim().split('\n').length, 1, told.stderr);
    assert.equal(told.stdout, '');
  }
  assert.match(demo('--help').stdout, /^usage: /);
});

test('the listing keeps to its limits and says what it left out', async () => {
  const folder = fixture('limits', 40);
  const whole = await list(folder);
  assert.equal(whole.files.length, 40);
  assert.equal(whole.bytes, expected(folder).bytes);

  const half = await list(folder, { limits: { ...LIMITS, totalBytes: Math.floor(whole.bytes / 2) } });
  assert.ok(half.bytes <= whole.bytes / 2 && half.files.length > 0);
  assert.equal(half.files.length + half.skipped.length, 40);
  assert.ok(half.skipped.every(({ why }) => why.startsWith('beyond')));

  const ten = await list(folder, { limits: { ...LIMITS, files: 10 } });
  assert.equal(ten.files.length, 10);
  assert.equal(ten.stopped, 'after 10 files');

  const without = await list(folder, { without: new Set(['er']) });
  assert.ok(without.files.length < 40 && without.files.every(({ path }) => !path.includes('er/')));
});

test('a file that goes or grows between listing and reading is left out, not fatal', async () => {
  const folder = fixture('gone', 3);
  const { files } = await list(folder);
  const file = files.find(({ size }) => size > 0);
  assert.match((await read(file, { ...LIMITS, fileBytes: file.size - 1 })).why, /^above/);
  rmSync(file.full);
  assert.deepEqual(await read(file), { why: 'gone meanwhile' });
});

test('bars and wrapped lines', () => {
  assert.equal(meter(0.5, 4), '██░░');
  assert.equal(meter(2, 3), '███');
  assert.equal(meter(0, 3), '░░░');
  assert.equal([...meter(0.3, 10)].length, 10);
  assert.equal(short('a\x1b[2J\nb'), 'a\ufffd[2J\ufffdb');
  assert.equal(short('0123456789', 4), '…789');
  assert.deepEqual(wrap('one two three', 7), ['one two', 'three']);
});
