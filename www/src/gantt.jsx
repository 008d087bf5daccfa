// The timeline. Plain SVG, drawn in pixels of its own width: it is a few rectangles that move all the time, its text
// must stay legible on a phone, and the page's policy forbids the inline styles that chart libraries set.
import { useEffect, useRef, useState } from 'preact/hooks';
import { LOCKS } from './lab.js';
import { seconds } from './parts.jsx';

const PAST = 30_000;
const FUTURE = 7_000;
const ROW = 34;
const AXIS = 26;

export function Gantt({ lab }) {
  const box = useRef(null);
  const [width, setWidth] = useState(640);
  useEffect(() => {
    const observer = new ResizeObserver(([{ contentRect }]) => setWidth(Math.max(200, Math.floor(contentRect.width))));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  const { now } = lab.clock;
  const gutter = width < 480 ? 46 : 64;
  const from = now - PAST;
  const x = (at) => gutter + ((Math.max(from, Math.min(at, now + FUTURE)) - from) / (PAST + FUTURE)) * (width - gutter);
  const height = AXIS + lab.owners.length * ROW + 4;
  const every = width < 480 ? 10_000 : 5_000;
  const first = Math.ceil((from - lab.start) / every) * every + lab.start;
  const ticks = Array.from({ length: Math.floor((now + FUTURE - first) / every) + 1 }, (_, index) => first + index * every).filter((at) => at >= lab.start);

  return (
    <div class="gantt" ref={box}>
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={told(lab)}>
        <defs>
          {[...LOCKS, 'any'].map((lock) => (
            <pattern key={lock} id={`hatch-${lock}`} class={lock} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
              <rect width="6" height="6" class="hatch-back" />
              <rect width="2" height="6" class="hatch-line" />
            </pattern>
          ))}
        </defs>
        {ticks.map((at) => (
          <g key={at}>
            <line class="grid" x1={x(at)} x2={x(at)} y1={AXIS - 4} y2={height} />
            {Math.abs(x(at) - x(now)) > 34 && x(at) < width - 14 && x(at) > gutter + 8 && <text class="tick" x={x(at)} y={14} text-anchor="middle">{(at - lab.start) / 1000} s</text>}
          </g>
        ))}
        {lab.owners.map((owner, row) => (
          <g key={owner.name} transform={`translate(0 ${AXIS + row * ROW})`}>
            <line class="grid" x1={0} x2={width} y1={ROW} y2={ROW} />
            <text class={`who${owner.dead || owner.frozen ? ' off' : ''}`} x={0} y={ROW / 2 + 5}>{owner.name}</text>
            {owner.bars().filter(({ to, deadline }) => (deadline ?? to) > from).map((bar) => <Bar key={`${bar.kind}${bar.from}`} bar={bar} x={x} />)}
          </g>
        ))}
        <line class="now" x1={x(now)} x2={x(now)} y1={AXIS - 6} y2={height} />
        <text class="tick strong" x={x(now)} y={14} text-anchor="middle">now</text>
      </svg>
    </div>
  );
}

function Bar({ bar: { kind, lock, token, from, to, deadline }, x }) {
  const left = x(from);
  const width = Math.max(1.5, x(to) - left);
  if (kind === 'waiting') return <line class={`waiting ${lock}`} x1={left} x2={left + width} y1={ROW / 2} y2={ROW / 2} />;
  if (kind === 'lapsed') return <rect class={`lapsed ${lock}`} x={left} y={7} width={width} height={ROW - 14} rx={3} fill={`url(#hatch-${lock})`} />;
  if (kind === 'lost') {
    const y = ROW / 2;
    return <path class="lost" d={`M${left - 5} ${y - 5}l10 10m0 -10l-10 10`} />;
  }
  return (
    <>
      {deadline && <rect class={`ahead ${lock}`} x={left} y={7} width={Math.max(width, x(deadline) - left)} height={ROW - 14} rx={3} />}
      <rect class={`held ${lock}`} x={left} y={7} width={width} height={ROW - 14} rx={3} />
      {width > 16 + 7 * String(token).length && <text class="token" x={left + 6} y={ROW / 2 + 4}>{shortly(token)}</text>}
    </>
  );
}

// After a restore, tokens are long; their end tells them apart.
const shortly = (token) => (token < 1e6 ? `#${token}` : `#…${String(token).slice(-4)}`);

function told(lab) {
  const now = lab.owners.map((owner) => `${owner.name} ${owner.status()}${owner.lease ? ` ${owner.lease.name}` : ''}`).join('; ');
  return `Timeline of who held, waited for and lost which lock. Now: ${now || 'nobody'}. The tables below tell the same.`;
}

export function Legend() {
  const kinds = [['ahead', 'up to its deadline'], ['waiting', 'waits'], ['lapsed', 'lapsed unnoticed'], ['lost', 'lost']];
  return (
    <ul class="legend" aria-label="Legend">
      {LOCKS.map((lock) => <li key={lock}><svg width="14" height="14" aria-hidden="true"><rect class={`held ${lock}`} width="14" height="14" rx="3" /></svg>{lock} held</li>)}
      {kinds.map(([kind, word]) => (
        <li key={kind}>
          <svg width="22" height="14" aria-hidden="true">
            {kind === 'waiting' && <line class="waiting any" x1="0" x2="22" y1="7" y2="7" />}
            {kind === 'lost' && <path class="lost" d="M6 2l10 10m0 -10l-10 10" />}
            {kind === 'lapsed' && <rect class="lapsed any" width="21" height="13" x=".5" y=".5" rx="3" fill="url(#hatch-any)" />}
            {kind === 'ahead' && <rect class="ahead any" width="21" height="13" x=".5" y=".5" rx="3" />}
          </svg>
          {word}
        </li>
      ))}
    </ul>
  );
}

/** The same as a table, drawn only while it is open. */
export function Timeline({ lab }) {
  const [open, setOpen] = useState(false);
  const from = lab.clock.now - PAST;
  const rows = !open ? [] : lab.owners
    .flatMap((owner) => owner.bars().filter(({ to }) => to > from).map((bar) => ({ who: owner.name, ...bar })))
    .sort((a, b) => b.from - a.from || a.who.localeCompare(b.who));
  const words = { held: 'held', waiting: 'waited', lapsed: 'lapsed', lost: 'lost' };
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>The timeline as a table</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label="The timeline as a table">
        <table>
          <thead><tr><th scope="col">Owner</th><th scope="col">What</th><th scope="col">Lock</th><th scope="col" class="num">From</th><th scope="col" class="num">To</th></tr></thead>
          <tbody>
            {rows.map((bar) => (
              <tr key={`${bar.who}${bar.kind}${bar.from}`}>
                <th scope="row">{bar.who}</th><td>{words[bar.kind]}</td><td>{bar.lock}</td>
                <td class="num">{seconds(bar.from - lab.start)}</td><td class="num">{seconds(bar.to - lab.start)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
