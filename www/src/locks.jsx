// The clock, and the owners that contend.
import { useRef, useState } from 'preact/hooks';
import { Gantt, Legend, Timeline } from './gantt.jsx';
import { MOST } from './lab.js';
import { Button, Code, seconds, Section, useLab } from './parts.jsx';
import code from './run.js?shown';

export function Clock() {
  const { lab, say, setManual } = useLab();
  const elapsed = lab.elapsed / 1000;
  const [until, setUntil] = useState(120);
  if (elapsed > until - 10) setUntil((Math.floor(elapsed / 60) + 2) * 60);
  const [held, setHeld] = useState('');

  const scrub = (event) => {
    setManual(true);
    const wanted = Number(event.currentTarget.value) * 1000;
    if (wanted > lab.elapsed) {
      lab.advance(wanted - lab.elapsed);
      setHeld('');
    } else {
      // The thumb returns to where the clock is.
      event.currentTarget.value = lab.elapsed / 1000;
      setHeld('A store never sees its time run back, so the thumb only goes forward.');
    }
  };
  const step = (ms) => {
    lab.advance(ms);
    say(`The clock is ${ms / 1000} seconds further`);
  };

  return (
    <div class="clock" role="group" aria-label="The store's clock">
      <fieldset class="modes">
        <legend class="hidden">What moves the clock</legend>
        {[[false, 'Real clock'], [true, 'Manual clock']].map(([manual, word]) => (
          <label key={word}>
            <input type="radio" name="clock" checked={lab.manual === manual} onChange={() => setManual(manual)} />
            <span>{word}</span>
          </label>
        ))}
      </fieldset>
      <div class="steps">
        {[1, 5, 20].map((by) => <button key={by} type="button" onClick={() => step(by * 1000)} aria-label={`Move the clock ${by} s forward`}>+{by} s</button>)}
      </div>
      <dl class="times">
        <div><dt>store</dt><dd data-test="store-clock">{elapsed.toFixed(1)} s</dd></div>
        <div><dt>real</dt><dd>{((Date.now() - lab.start) / 1000).toFixed(1)} s</dd></div>
      </dl>
      <label class="scrub">
        <span class="hidden">Move the store's clock forward</span>
        <input type="range" min="0" max={until} step="0.1" value={elapsed} onInput={scrub} aria-valuetext={`${elapsed.toFixed(1)} seconds since the page opened`} />
      </label>
      {held && <p class="hint">{held}</p>}
    </div>
  );
}

export function Locks() {
  const { lab, say, redraw } = useLab();
  const adder = useRef(null);
  const { held } = lab.store.sync.queryLocks();

  const add = () => {
    const owner = lab.add();
    say(owner ? `${owner.name} joins` : 'No more fit');
    redraw();
  };
  const toggle = (owner) => {
    if (owner.frozen) owner.thaw();
    else owner.freeze();
    const text = owner.frozen ? `${owner.name} freezes` : `${owner.name} thaws`;
    lab.tell(text);
    say(text);
    redraw();
  };
  const end = (owner) => {
    if (owner.dead) {
      lab.remove(owner);
      adder.current?.focus();
      say(`${owner.name} is removed`);
    } else {
      owner.kill();
      const text = `${owner.name} is killed; nobody releases for it`;
      lab.tell(text);
      say(text);
    }
    redraw();
  };

  return (
    <Section
      id="locks"
      title="Leases, as they happen"
      lead="Three owners want two locks in one store. Each takes a lease for six seconds and renews it while it works. Freeze one that holds a lock, and watch its lease lapse, another take over, and the frozen one find out."
      code={
        <>
          <Code label="The store, on the lab's clock" part={code.openStore} />
          <Code label="An owner takes a lock" part={code.acquire} />
          <Code label="It renews while it works" part={code.keep} />
          <Code label="It writes, fenced, and lets go" part={code.finish} />
        </>
      }
    >
      <Clock />
      <Gantt lab={lab} />
      <Legend />
      <div class="scroll" tabIndex={0} role="region" aria-label="Owners">
        <table class="owners">
          <caption>Owners</caption>
          <thead><tr><th scope="col">Owner</th><th scope="col">Now</th><th scope="col">Lock</th><th scope="col" class="num">Left</th><th scope="col"><span class="hidden">Controls</span></th></tr></thead>
          <tbody>
            {lab.owners.map((owner) => (
              <tr key={owner.name} data-owner={owner.name}>
                <th scope="row">{owner.name}</th>
                <td class={owner.dead || owner.frozen ? 'off' : ''}>{owner.status()}</td>
                <td>{owner.lease?.name ?? (owner.state === 'waiting' ? owner.lock : '–')}</td>
                <td class="num">{owner.lease ? seconds(owner.lease.expiresAt - lab.clock.now) : '–'}</td>
                <td class="buttons">
                  <Button off={owner.dead} onClick={() => toggle(owner)} aria-label={`${owner.frozen ? 'Thaw' : 'Freeze'} ${owner.name}`}>{owner.frozen ? 'Thaw' : 'Freeze'}</Button>
                  <Button onClick={() => end(owner)} aria-label={`${owner.dead ? 'Remove' : 'Kill'} ${owner.name}`}>{owner.dead ? 'Remove' : 'Kill'}</Button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p><button type="button" ref={adder} aria-disabled={lab.owners.length >= MOST ? 'true' : undefined} onClick={add}>Add an owner</button></p>
      <div class="pair">
        <div class="scroll" tabIndex={0} role="region" aria-label="What the store says">
          <table class="rows">
            <caption>What the store says: <code>queryLocks()</code></caption>
            <thead><tr><th scope="col">Lock</th><th scope="col">Owner</th><th scope="col" class="num">Token</th><th scope="col" class="num">Left</th></tr></thead>
            <tbody>
              {held.length === 0 && <tr><td colSpan={4} class="off">Nobody holds anything.</td></tr>}
              {held.map((row) => (
                <tr key={row.name}>
                  <th scope="row">{row.name}</th><td>{row.owner}</td><td class="num">{row.token}</td>
                  <td class="num">{row.lapsed ? 'lapsed' : seconds(row.expiresAt - lab.clock.now)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        <div>
          <h3>Lately</h3>
          <ol class="events">
            {lab.events.slice(0, 6).map((event) => (
              <li key={`${event.at}${event.text}`} class={event.loud ? 'bad' : ''}><span class="when">{seconds(event.at)}</span> {event.text}</li>
            ))}
          </ol>
        </div>
      </div>
      <Timeline lab={lab} />
    </Section>
  );
}
