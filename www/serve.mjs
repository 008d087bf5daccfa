// Builds the page, serves it on a free port of this machine alone, and opens it where there is a browser to do so.
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { build, preview } from 'vite';

const root = fileURLToPath(new URL('.', import.meta.url));
await build({ root, logLevel: 'warn' });
const server = await preview({ root, logLevel: 'warn', preview: { host: '127.0.0.1', port: Number(process.env.PORT ?? 0) } });
const { port } = server.httpServer.address();
const url = `http://127.0.0.1:${port}/`;
console.log(`www: the lease lab is at ${url} (Ctrl-C ends it)`);

const openers = { darwin: ['open', []], win32: ['cmd', ['/c', 'start', '']] };
const screen = process.platform in openers || process.env.DISPLAY || process.env.WAYLAND_DISPLAY;
if (screen && process.stdout.isTTY && !process.env.CI) {
  const [program, args] = openers[process.platform] ?? ['xdg-open', []];
  // Without such a program the line above has to do.
  spawn(program, [...args, url], { stdio: 'ignore', detached: true }).on('error', () => {}).unref();
}
