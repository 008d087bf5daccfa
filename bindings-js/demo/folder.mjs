// The files of a folder, within limits: what a store in memory can hold is not what a disk can.
import { createHash } from 'node:crypto';
import { lstat, readdir, readFile, stat } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';

export const MIB = 2 ** 20;
export const LIMITS = {
  /** The largest value that an entry may have. */
  fileBytes: 64 * MIB,
  /** Values stay in memory, and the snapshot is a second copy of all of them. */
  totalBytes: 256 * MIB,
  /** Also those that are left out: nobody wants to wait for a whole disk to be listed. */
  files: 20_000,
};

/** What the project's own tree is read without: what was built or fetched. */
export const BUILT = new Set(['.git', 'target', 'node_modules', 'dist']);

/**
 * Lists the regular files under `root` in a stable order, as `{ path, size }` with `/` between the parts, and what was
 * left out: `[{ path, why }]`. Links are not followed, nor are other file systems entered, since what is mounted below may
 * be no files at all (`/proc`). `stopped` tells where the listing ended early.
 */
export async function list(root, { without = new Set(), limits = LIMITS, progress = () => {} } = {}) {
  const files = [];
  const skipped = [];
  const waiting = [root];
  const { dev } = await stat(root);
  let bytes = 0;
  let stopped;
  while (waiting.length > 0 && !stopped) {
    const folder = waiting.pop();
    let found;
    try {
      if ((await stat(folder)).dev !== dev) {
        skipped.push({ path: named(root, folder), why: 'folder of another file system' });
        continue;
      }
      found = await readdir(folder, { withFileTypes: true });
    } catch (error) {
      if (folder === root) throw error;
      skipped.push({ path: named(root, folder), why: reason(error) });
      continue;
    }
    found.sort((a, b) => (a.name < b.name ? -1 : 1));
    const folders = [];
    for (const entry of found) {
      const full = join(folder, entry.name);
      const path = named(root, full);
      if (entry.isDirectory()) {
        if (!without.has(entry.name)) folders.push(full);
        continue;
      }
      if (!entry.isFile()) {
        skipped.push({ path, why: entry.isSymbolicLink() ? 'link' : 'no regular file' });
        continue;
      }
      if (files.length + skipped.length >= limits.files) {
        stopped = `after ${limits.files.toLocaleString('en')} files`;
        break;
      }
      let size;
      try {
        ({ size } = await lstat(full));
      } catch (error) {
        skipped.push({ path, why: reason(error) });
        continue;
      }
      if (size > limits.fileBytes) {
        skipped.push({ path, why: `above ${limits.fileBytes / MIB} MiB` });
      } else if (bytes + size > limits.totalBytes) {
        skipped.push({ path, why: `beyond ${limits.totalBytes / MIB} MiB in all` });
      } else {
        bytes += size;
        files.push({ path, full, size });
      }
      progress(files.length);
    }
    waiting.push(...folders.reverse());
  }
  return { files, bytes, skipped, stopped };
}

/** The bytes of a listed file and their SHA-256 in hex, or `{ why }` where it cannot be read any more. */
export async function read({ full, size }, limits = LIMITS) {
  let bytes;
  try {
    // What says that it is empty is taken at its word: some such files never end.
    bytes = size === 0 ? Buffer.alloc(0) : await readFile(full);
  } catch (error) {
    return { why: reason(error) };
  }
  // It may have grown since it was listed.
  if (bytes.length > limits.fileBytes) return { why: `above ${limits.fileBytes / MIB} MiB` };
  return { bytes, hash: sha256(bytes) };
}

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

const REASONS = { EACCES: 'not readable by this user', EPERM: 'not readable by this user', ENOENT: 'gone meanwhile' };

export const reason = (error) => REASONS[error.code] ?? `not readable (${error.code ?? error.message})`;

const named = (root, full) => relative(root, full).split(sep).join('/');
