// The garbage-collection window: from staged to due to taken.
import { open } from 'alkstore';
import { useEffect, useState } from 'preact/hooks';
import { Button, Code, decode, Said, seconds, Section, useLab } from './parts.jsx';
import { publishAgain, stage, takeDue } from './run.js';
import code from './run.js?shown';

const WAIT = 10_000;
const FAR = 8e15;

/**
 * What waits in the window. The store tells how much, not what, until it is due; so a copy of the store is asked, where
 * taking everything does no harm.
 */
async function peek(store, scratch) {
  await scratch.restore(await store.snapshot());
  return (await scratch.window.take({ now: FAR })).map(({ key, visibleAfter }) => ({ key: decode(key), visibleAfter }));
}

export function Lane() {
  const { lab, say, restored } = useLab();
  const { store } = lab;
  const [scratch, setScratch] = useState(null);
  const [waiting, setWaiting] = useState([]);
  const [taken, setTaken] = useState([]);
  const [number, setNumber] = useState(1);
  const [said, setSaid] = useState({ text: '', bad: false });

  useEffect(() => void open().then(setScratch), []);
  const look = async () => scratch && setWaiting(await peek(store, scratch));
  useEffect(() => void look(), [scratch, restored]);

  const doing = (work) => async () => {
    try {
      const text = await work();
      setSaid({ text, bad: false });
      say(text);
    } catch (error) {
      setSaid({ text: `${error.code}: ${error.message}`, bad: true });
      say(`${error.code}`);
    }
    await look();
  };
  const add = doing(async () => {
    const key = `blob/${number}`;
    setNumber(number + 1);
    await store.entries.putIfAbsent(key, new TextEncoder().encode(`content ${number}`));
    await stage(store, key, WAIT);
    return `${key} has no reference left: it is due in 10 seconds`;
  });
  const take = doing(async () => {
    const due = await takeDue(store);
    setTaken((was) => [...due.map(({ key }) => decode(key)), ...was].slice(0, 6));
    return due.length === 0 ? 'Nothing is due' : `Taken and deleted: ${due.map(({ key }) => decode(key)).join(', ')}`;
  });
  const back = (key) => doing(async () => {
    await publishAgain(store, key, `content again`);
    return `${key} is published again, and left the window in the same step`;
  });

  const { now } = lab.clock;
  const staged = waiting.filter(({ visibleAfter }) => visibleAfter > now);
  const due = waiting.filter(({ visibleAfter }) => visibleAfter <= now);

  return (
    <Section
      id="window"
      title="Deleting, but not too soon"
      lead="What nobody refers to any more waits in the window first. Whoever publishes it again in time takes it out; what is due is handed out once, to one taker."
      code={
        <>
          <Code label="Stage" part={code.stage} />
          <Code label="Take what is due" part={code.takeDue} />
          <Code label="Publish again" part={code.publishAgain} />
        </>
      }
    >
      <p class="row">
        <button type="button" class="strong" onClick={add}>Stage a blob</button>
        <button type="button" onClick={take}>Take what is due</button>
        <span class="off">in the window: <span data-test="window-count">{store.sync.stats().window}</span></span>
      </p>
      <div class="lane">
        <div>
          <h3>Staged</h3>
          <ul>
            {staged.length === 0 && <li class="none">empty</li>}
            {staged.map(({ key, visibleAfter }) => (
              <li key={key}>
                <span class="key">{key}</span> <span class="off num">{seconds(visibleAfter - now)}</span>
                <progress max={WAIT} value={WAIT - (visibleAfter - now)} aria-label={`${key}: how much of its wait is over`} />
                <Button onClick={back(key)} aria-label={`Publish again: ${key}`}>Publish again</Button>
              </li>
            ))}
          </ul>
        </div>
        <div>
          <h3>Due</h3>
          <ul>
            {due.length === 0 && <li class="none">empty</li>}
            {due.map(({ key }) => (
              <li key={key}>
                <span class="key">{key}</span>
                <Button onClick={back(key)} aria-label={`Publish again: ${key}`}>Publish again</Button>
              </li>
            ))}
          </ul>
        </div>
        <div>
          <h3>Taken</h3>
          <ul>
            {taken.length === 0 && <li class="none">empty</li>}
            {taken.map((key) => <li key={key}><span class="key">{key}</span> <span class="off">deleted</span></li>)}
          </ul>
        </div>
      </div>
      <Said text={said.text} bad={said.bad} />
    </Section>
  );
}
