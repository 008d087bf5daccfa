// To a file and back.
import { useState } from 'preact/hooks';
import { Code, Said, Section, useLab } from './parts.jsx';
import { restore, save } from './run.js';
import code from './run.js?shown';

export function Snapshot() {
  const { lab, say, afterRestore } = useLab();
  const { store } = lab;
  const [said, setSaid] = useState({ text: '', bad: false });
  const tell = (text, bad = false) => {
    setSaid({ text, bad });
    say(text);
  };
  const download = async () => {
    try {
      const blob = await save(store);
      const link = document.createElement('a');
      link.href = URL.createObjectURL(blob);
      link.download = 'lease-lab.alkstore';
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      tell(`Saved ${blob.size.toLocaleString('en')} bytes as lease-lab.alkstore`);
    } catch (error) {
      tell(`${error.code}: ${error.message}`, true);
    }
  };
  const load = async (event) => {
    const [file] = event.currentTarget.files;
    const input = event.currentTarget;
    if (!file) return;
    try {
      await lab.exclusive(() => restore(store, file));
      afterRestore();
      tell(`${file.name} is restored. Whose lease was not in it finds out at its next renewal.`);
    } catch (error) {
      tell(error.code ? `${error.code}: ${error.message}` : 'The file could not be read.', true);
    }
    // So that the same file can be chosen again.
    input.value = '';
  };
  const { locks, entries, window, bytes, revision, wasmBytes } = store.sync.stats();
  const facts = [['locks', locks], ['entries', entries], ['in the window', window], ['bytes', bytes], ['last revision', revision], ['WebAssembly memory', `${wasmBytes / 1024} KiB`]];

  return (
    <Section
      id="snapshot"
      title="To a file and back"
      lead="The whole store as bytes: versioned, checksummed, deadlines absolute. Damaged bytes change nothing, and tokens never repeat: later ones are above all that either side has given."
      code={
        <>
          <Code label="Save" part={code.save} />
          <Code label="Restore" part={code.restore} />
        </>
      }
    >
      <div class="row">
        <button type="button" class="strong" onClick={download}>Save a snapshot</button>
        <label class="file">Restore from a file<input type="file" onChange={load} /></label>
      </div>
      <Said text={said.text} bad={said.bad} />
      <dl class="facts" aria-label="The store now">
        {facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd data-test={`stat-${name}`}>{typeof value === 'number' ? value.toLocaleString('en') : value}</dd></div>)}
      </dl>
    </Section>
  );
}
