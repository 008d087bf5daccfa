// Entries that lapse.
import { useRef, useState } from 'preact/hooks';
import { Code, decode, Said, seconds, Section, useLab } from './parts.jsx';
import { extend, forget, remember } from './run.js';
import code from './run.js?shown';

const SHOWN = 12;

export function Entries() {
  const { lab, say, redraw } = useLab();
  const { store } = lab;
  const [said, setSaid] = useState({ text: '', bad: false });
  const first = useRef(null);

  const tell = (text, bad = false) => {
    setSaid({ text, bad });
    say(text);
    redraw();
  };
  const trying = async (work) => {
    try {
      await work();
    } catch (error) {
      tell(`${error.code}: ${error.message}`, true);
    }
  };
  const put = (event) => {
    event.preventDefault();
    const { key, value, ttl } = Object.fromEntries(new FormData(event.currentTarget));
    trying(async () => {
      const stored = await remember(store, key, value, ttl === '' ? undefined : Number(ttl) * 1_000);
      tell(stored ? `${key} is stored` : `${key} is there already: the first writer has won`, !stored);
    });
  };

  const { entries } = store.sync;
  const all = entries.list();
  const rows = all.slice(0, SHOWN).map(({ key, ...meta }) => ({ ...meta, key: decode(key), value: decode(entries.get(key) ?? new Uint8Array()) }));

  return (
    <Section
      id="entries"
      title="Entries that lapse by themselves"
      lead="Bytes under a key, with a version, and with a deadline if you like. Of two that create the same key the first wins; a lapsed entry is absent to everybody."
      code={
        <>
          <Code label="Create, for a while" part={code.remember} />
          <Code label="Move the deadline" part={code.extend} />
          <Code label="Delete" part={code.forget} />
        </>
      }
    >
      <form class="put" onSubmit={put}>
        <label>Key<input ref={first} name="key" defaultValue="session/ada" required maxLength={60} autocomplete="off" spellcheck={false} /></label>
        <label>Value<input name="value" defaultValue="signed in" maxLength={60} autocomplete="off" /></label>
        <label>Lapses after
          <select name="ttl">
            <option value="10">10 s</option>
            <option value="30">30 s</option>
            <option value="">never</option>
          </select>
        </label>
        <button type="submit" class="strong">Create</button>
      </form>
      <Said text={said.text} bad={said.bad} />
      <div class="scroll" tabIndex={0} role="region" aria-label="Entries">
        <table class="entries">
          <caption>All entries: <code>entries.list()</code></caption>
          <thead><tr><th scope="col">Key</th><th scope="col">Value</th><th scope="col" class="num">Version</th><th scope="col" class="num">Left</th><th scope="col"><span class="hidden">Controls</span></th></tr></thead>
          <tbody>
            {rows.length === 0 && <tr class="empty"><td colSpan={5} class="off">Nothing yet: create one.</td></tr>}
            {rows.map(({ key, value, version, expiresAt }) => (
              <tr key={key} data-entry={key}>
                <th scope="row">{key}</th>
                <td class="value">{value}</td>
                <td class="num version">{version}</td>
                <td class="num left">{expiresAt === null ? 'for ever' : seconds(expiresAt - lab.clock.now)}</td>
                <td class="buttons">
                  <button type="button" onClick={() => trying(async () => tell((await extend(store, key, 20_000)) ? `${key} has 20 seconds from now` : `${key} has lapsed`))} aria-label={`Give ${key} 20 s`}>20 s</button>
                  <button
                    type="button"
                    onClick={() => trying(async () => {
                      tell((await forget(store, key)) ? `${key} is deleted` : `${key} was gone`);
                      first.current?.focus();
                    })}
                    aria-label={`Delete ${key}`}
                  >Delete</button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {all.length > SHOWN && <p class="off">and {all.length - SHOWN} more</p>}
    </Section>
  );
}
