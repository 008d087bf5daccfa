// Plots of benchmark rows as SVG: text and lines, readable on a light and on a dark ground.

const STYLE = `
  svg { --ground: #ffffff; --ink: #1f2328; --soft: #59636e; --rule: #d1d9e0; --good: #1a7f37; --bad: #bc4c00; --none: #0969da; }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #0d1117; --ink: #e6edf3; --soft: #9198a1; --rule: #3d444d; --good: #3fb950; --bad: #f0883e; --none: #58a6ff; }
  }
  .ground { fill: var(--ground); }
  text { font: 12px system-ui, sans-serif; fill: var(--ink); }
  .title { font-size: 15px; font-weight: 600; }
  .soft { fill: var(--soft); }
  .rule { stroke: var(--rule); }
  .one { stroke: var(--ink); stroke-width: 1.5; }
  .goal { stroke: var(--ink); stroke-width: 2.5; }
  .good { fill: var(--good); } .bad { fill: var(--bad); } .none { fill: var(--none); }
  .line { fill: none; stroke-width: 2; }
`;
// Told apart by hue, by lightness and by dash.
const SERIES = [['--none', ''], ['--bad', '7 3'], ['--good', '2 3'], ['--soft', '9 3 2 3']];

const WIDTH = 900;
const escape = (text) => String(text).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
const digits = (number) => String(Number(number.toPrecision(3)));
const text = (x, y, words, { kind = '', anchor = 'start' } = {}) => `<text x="${x}" y="${y}" class="${kind}" text-anchor="${anchor}">${escape(words)}</text>`;
const shorten = (words, most) => (words.length > most ? `${words.slice(0, most - 1)}…` : words);

function frame(height, { title, subtitle }, what, parts) {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${escape(`${title}: ${what}`)}">
<style>${STYLE}</style>
<rect class="ground" width="${WIDTH}" height="${height}"/>
${text(20, 28, `${title}: ${what}`, { kind: 'title' })}
${text(20, 46, subtitle, { kind: 'soft' })}
${parts.join('\n')}
</svg>
`;
}

// A logarithmic axis, and where to rule it.
function axis(values, from, to) {
  const low = Math.log10(Math.min(...values) / 1.15);
  const high = Math.log10(Math.max(...values) * 1.15);
  const ticks = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
    for (const step of high - low > 3 ? [1] : [1, 2, 5]) {
      const at = Math.log10(step) + power;
      if (at >= low && at <= high) ticks.push(step * 10 ** power);
    }
  }
  return { at: (value) => from + ((Math.log10(value) - low) / (high - low)) * (to - from), ticks };
}

/** The races: how many times as fast as each peer, with a line at 1 and a mark at each goal. */
export function bars(rows, about) {
  const races = rows.filter((row) => !row.lower && row.ratio > 0);
  if (races.length === 0) return undefined;
  const [left, right, top, pitch] = [440, WIDTH - 70, 84, 20];
  const scale = axis(races.flatMap(({ ratio, goal }) => [ratio, goal ?? 1, 1]), left, right);
  const parts = [];
  let y = top;
  let job;
  const shapes = [];
  for (const { job: of, peer, ratio, goal } of races) {
    if (of !== job) {
      y += job === undefined ? 0 : 12;
      shapes.push(text(20, y + 13, shorten(of, 60), { kind: 'job' }));
      y += pitch;
      job = of;
    }
    const [from, to] = [scale.at(1), scale.at(ratio)].sort((a, b) => a - b);
    const kind = goal === null ? 'none' : ratio >= goal ? 'good' : 'bad';
    const words = goal === null ? digits(ratio) : `${digits(ratio)} ${ratio >= goal ? 'met' : 'missed'}`;
    shapes.push(text(left - 12, y + 13, shorten(peer, 55), { kind: 'soft', anchor: 'end' }));
    shapes.push(`<rect class="${kind}" x="${from.toFixed(1)}" y="${y + 3}" width="${Math.max(to - from, 1).toFixed(1)}" height="13" rx="2"/>`);
    if (goal !== null) shapes.push(`<line class="goal" x1="${scale.at(goal).toFixed(1)}" x2="${scale.at(goal).toFixed(1)}" y1="${y - 1}" y2="${y + 20}"/>`);
    shapes.push(text(Math.max(to, goal === null ? 0 : scale.at(goal)) + 5, y + 14, words));
    y += pitch;
  }
  for (const tick of scale.ticks) {
    const x = scale.at(tick).toFixed(1);
    parts.push(`<line class="${tick === 1 ? 'one' : 'rule'}" x1="${x}" x2="${x}" y1="${top - 6}" y2="${y + 4}"/>`);
    parts.push(text(x, top - 12, `${digits(tick)}x`, { kind: 'soft', anchor: 'middle' }));
  }
  parts.push(...shapes, text(20, y + 28, 'Speed against each peer, logarithmic: right of the line at 1x is faster. The short thick marks are goals.', { kind: 'soft' }));
  return frame(y + 44, about, 'speed against peers', parts);
}

/** The rows named `JOB among N rows` as curves over N. */
export function curves(rows, about) {
  const series = new Map();
  for (const { job, ratio } of rows) {
    const found = /^(.*) among ([\d_,]+) rows$/.exec(job);
    if (!found || !(ratio > 0)) continue;
    const [, name, size] = found;
    if (!series.has(name)) series.set(name, []);
    series.get(name).push([Number(size.replaceAll(/[_,]/g, '')), ratio]);
  }
  const lines = [...series].filter(([, points]) => points.length > 1);
  if (lines.length === 0) return undefined;
  const points = lines.flatMap(([, points]) => points);
  const [left, right, top, bottom] = [70, WIDTH - 250, 84, 360];
  const across = axis(points.map(([size]) => size), left, right);
  const up = axis([...points.map(([, ratio]) => ratio), 1, 10], bottom, top);
  const parts = [];
  for (const tick of up.ticks) {
    const y = up.at(tick).toFixed(1);
    parts.push(`<line class="${tick === 1 ? 'one' : 'rule'}" x1="${left}" x2="${right}" y1="${y}" y2="${y}"/>`);
    parts.push(text(left - 8, Number(y) + 4, `${digits(tick)}x`, { kind: 'soft', anchor: 'end' }));
  }
  for (const size of [...new Set(points.map(([size]) => size))]) {
    parts.push(text(across.at(size).toFixed(1), bottom + 20, size.toLocaleString('en'), { kind: 'soft', anchor: 'middle' }));
  }
  // Labels keep their distance, in the order in which the lines end.
  let free = Infinity;
  lines.sort(([, a], [, b]) => a.at(-1)[1] - b.at(-1)[1]);
  lines.forEach(([name, points], at) => {
    const [colour, dash] = SERIES[at % SERIES.length];
    const spots = points.sort(([a], [b]) => a - b).map(([size, ratio]) => [across.at(size).toFixed(1), up.at(ratio).toFixed(1)]);
    parts.push(`<polyline class="line" style="stroke: var(${colour})" stroke-dasharray="${dash}" points="${spots.map((spot) => spot.join(',')).join(' ')}"/>`);
    for (const [x, y] of spots) parts.push(`<circle cx="${x}" cy="${y}" r="3.5" style="fill: var(${colour})"/>`);
    const y = Math.min(Number(spots.at(-1)[1]) + 4, free - 16);
    free = y;
    parts.push(text(Number(spots.at(-1)[0]) + 10, y, shorten(`${name} ${digits(points.at(-1)[1])}x`, 38)));
  });
  parts.push(text(left, bottom + 42, 'Time for one, against the same in the smallest store; both axes logarithmic. Rows already there: across.', { kind: 'soft' }));
  return frame(bottom + 58, about, 'growth', parts);
}
