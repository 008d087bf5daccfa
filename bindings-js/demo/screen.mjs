// The terminal: colours where there are any, lines that fit, a progress bar that leaves nothing behind.

const CODES = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, blue: 34, magenta: 35, cyan: 36 };

export class Screen {
  constructor(stream, { quiet = false } = {}) {
    this.stream = stream;
    this.quiet = quiet;
    // The stream knows about NO_COLOR and about terminals without colours.
    this.colours = Boolean(stream.isTTY && stream.hasColors?.());
    this.width = Math.max(40, Math.min(stream.columns || Number(process.env.COLUMNS) || 80, 110));
    this.drawn = 0;
    this.dirty = false;
  }

  paint(style, text) {
    return this.colours ? style.split(' ').reduce((inner, name) => `\x1b[${CODES[name]}m${inner}\x1b[0m`, text) : text;
  }

  line(text = '') {
    if (this.quiet) return;
    this.#wipe();
    this.stream.write(`${text}\n`);
  }

  /** A heading, and what is below it in one sentence. */
  heading(title, text) {
    this.line();
    this.line(`${this.paint('bold', title)} ${this.paint('dim', '─'.repeat(Math.max(0, this.width - title.length - 1)))}`);
    if (text) this.text(text, '', 'dim');
  }

  /** Wraps plain text at the width. */
  text(text, indent = '', style) {
    for (const part of wrap(text, this.width - indent.length)) this.line(indent + (style ? this.paint(style, part) : part));
  }

  /** A line of the timeline: when, who if anybody, what. */
  event(elapsed, who, text, style) {
    const when = (elapsed < 600_000 ? `${(elapsed / 1000).toFixed(2)} s` : hours(elapsed)).padStart(9);
    const indent = who ? 18 : 11;
    const [first, ...rest] = wrap(text, this.width - indent);
    this.line(`${this.paint('dim', when)}  ${who ? `${this.paint('bold', who.padEnd(5))}  ` : ''}${style ? this.paint(style, first) : first}`);
    for (const more of rest) this.line(' '.repeat(indent) + (style ? this.paint(style, more) : more));
  }

  /** Draws over the last line, on a terminal alone. */
  progress(label, done, total) {
    if (this.quiet || !this.stream.isTTY) return;
    const now = Date.now();
    if (now - this.drawn < 50) return;
    this.drawn = now;
    const count = total === undefined ? `${done}` : `${done} of ${total}`;
    const room = Math.min(40, this.width - label.length - count.length - 6);
    const bar = total === undefined || room < 5 ? '' : meter(done / total, room);
    this.#wipe();
    this.dirty = true;
    this.stream.write(`  ${label} ${this.paint('cyan', bar)} ${count}`);
  }

  #wipe() {
    if (this.dirty) this.stream.write('\r\x1b[K');
    this.dirty = false;
  }
}

/** A bar of `room` cells, drawn to an eighth of a cell. */
export function meter(part, room) {
  const eighths = Math.round(Math.max(0, Math.min(part, 1)) * room * 8);
  const rest = eighths % 8;
  return ('█'.repeat(Math.floor(eighths / 8)) + (rest ? ' ▏▎▍▌▋▊▉'[rest] : '')).padEnd(room, '░');
}

function hours(ms) {
  const [h, m, s] = [3_600_000, 60_000, 1_000].map((unit) => Math.floor(ms / unit));
  return [h, m % 60, s % 60].map((part) => String(part).padStart(2, '0')).join(':');
}

/** A word that is longer than the width keeps a line of its own. */
export function wrap(text, width) {
  const lines = [''];
  for (const word of text.split(' ')) {
    const last = lines.at(-1);
    if (last !== '' && last.length + 1 + word.length > width) lines.push(word);
    else lines[lines.length - 1] = last === '' ? word : `${last} ${word}`;
  }
  return lines;
}

export function bytes(number) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? number : number.toFixed(1)} ${units[unit]}`;
}

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString('en')} ${number === 1 ? one : many}`;

/** A name as it may be shown: it may hold whatever a file system allows, codes for the terminal included. */
export const shown = (name) => name.replace(/\p{Cc}/gu, '\u{fffd}');

/** The end of a long path, which says more than its beginning. */
export const short = (path, most = 40) => (path.length <= most ? shown(path) : `…${shown(path.slice(1 - most))}`);
