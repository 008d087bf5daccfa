// The stale writer, refused by its token, and what happens without it.
import { useState } from 'preact/hooks';
import { Button, Code, decode, Said, seconds, Section, useLab } from './parts.jsx';
import { acquire, writeBlindly, writeFenced } from './run.js';
import code from './run.js?shown';

const START = { at: 0, first: null, second: null, said: 'Four steps. Begin with the first.', bad: false };

export function Fence() {
  const { lab, say } = useLab();
  const { store } = lab;
  const [story, setStory] = useState(START);
  const { at, first, second } = story;

  const tell = (more) => {
    setStory((was) => ({ ...was, bad: false, ...more }));
    say(more.said);
  };
  const doing = (work) => async () => {
    try {
      await work();
    } catch (error) {
      tell({ said: `${error.code}: ${error.message}`, bad: true });
    }
  };

  const steps = [
    ['North takes the lease', doing(async () => {
      const lease = await acquire(store, 'report', 'North');
      if (lease === null) return tell({ said: 'Somebody holds it still: wait until it lapses.', bad: true });
      return tell({ at: 1, first: lease, said: `North holds report with token ${lease.token}, and begins to write a long report.` });
    })],
    ['North stalls for 7 seconds', doing(async () => {
      await lab.advance(7_000);
      tell({ at: 2, said: 'Seven seconds went by on the store’s clock. The lease has lapsed; North does not know.' });
    })],
    ['South takes over and writes', doing(async () => {
      const lease = await acquire(store, 'report', 'South');
      if (lease === null) return tell({ said: 'Somebody holds it still: wait until it lapses.', bad: true });
      await writeFenced(store, lease, 'by South, complete');
      return tell({ at: 3, second: lease, said: `South got token ${lease.token}, above North’s ${first.token}, and wrote.` });
    })],
  ];
  const fenced = doing(async () => {
    try {
      await writeFenced(store, first, 'by North, out of date');
      tell({ said: 'The write went through.', bad: true });
    } catch (error) {
      if (error.code !== 'LEASE_LOST') throw error;
      tell({ said: `LEASE_LOST: ${error.message}. South’s report stands.` });
    }
  });
  const blindly = doing(async () => {
    await writeBlindly(store, 'by North, out of date');
    tell({ said: 'Without the token nothing stopped North: South’s report is gone, and nobody was told.', bad: true });
  });
  const again = doing(async () => {
    await second?.release();
    await first?.release();
    await store.entries.delete('report');
    setStory(START);
    say('Back to the start');
  });

  const entry = store.sync.entries.getEntry('report');
  const writer = (name, lease) => {
    const left = lease ? lease.expiresAt - lab.clock.now : 0;
    return (
      <div class="writer">
        <h3>{name}</h3>
        <p>{lease ? `token ${lease.token}` : 'no lease'}</p>
        <p class={lease && left <= 0 ? 'badtext' : 'off'}>{lease ? (left > 0 ? `${seconds(left)} left` : 'lapsed') : ' '}</p>
      </div>
    );
  };

  return (
    <Section
      id="fence"
      title="A lease is not a fence without its token"
      lead="A process that pauses for longer than its lease still believes that it holds the lock. What keeps its late write out is the token, checked in the same step as the write."
      code={
        <>
          <Code label="A write with the token" part={code.writeFenced} />
          <Code label="The same without it" part={code.writeBlindly} />
        </>
      }
    >
      <ol class="story">
        {steps.map(([label, act], index) => (
          <li key={label} class={at > index ? 'done' : ''}>
            <Button off={at !== index} onClick={act}>{label}</Button>
            {at > index && <span class="tick-mark"><span aria-hidden="true">✓</span><span class="hidden">done</span></span>}
          </li>
        ))}
        <li class="choice">
          <Button class="strong" off={at < 3} onClick={fenced}>North writes with its token</Button>
          <Button class="danger" off={at < 3} onClick={blindly}>North writes without it</Button>
        </li>
      </ol>
      <div class="writers">
        {writer('North', first)}
        {writer('South', second)}
        <div class={`writer entry${entry && decode(entry.value).includes('North') ? ' spoilt' : ''}`} data-test="report">
          <h3>The entry <code>report</code></h3>
          <p>{entry ? decode(entry.value) : 'nothing yet'}</p>
          <p class="off">{entry ? `version ${entry.version}` : ' '}</p>
        </div>
      </div>
      <Said text={story.said} bad={story.bad} />
      <p><Button off={at === 0} onClick={again}>Start again</Button></p>
    </Section>
  );
}
