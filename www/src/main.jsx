// The page: opens the lab, moves its clock, and draws.
import facts from 'virtual:facts';
import { render } from 'preact';
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Entries } from './entries.jsx';
import { Fence } from './fence.jsx';
import { Guarantees, Start } from './guide.jsx';
import { Lab } from './lab.js';
import { Lane } from './lane.jsx';
import { Locks } from './locks.jsx';
import { LabContext } from './parts.jsx';
import { remember } from './run.js';
import { Snapshot } from './snapshot.jsx';

const NAV = [['locks', 'Leases'], ['fence', 'Fencing'], ['entries', 'Entries'], ['window', 'Window'], ['snapshot', 'Snapshot'], ['start', 'Quick start'], ['guarantees', 'Guarantees']];
const still = matchMedia('(prefers-reduced-motion: reduce)');

function Theme() {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const current = () => document.documentElement.dataset.theme ?? (dark.matches ? 'dark' : 'light');
  const [theme, setTheme] = useState(current);
  useEffect(() => {
    const follow = () => setTheme(current());
    dark.addEventListener('change', follow);
    return () => dark.removeEventListener('change', follow);
  }, []);
  const toggle = () => {
    const next = theme === 'dark' ? 'light' : 'dark';
    document.documentElement.dataset.theme = next;
    setTheme(next);
    try {
      localStorage.setItem('theme', next);
    } catch {
      // Storage is blocked: it lasts until the page is left.
    }
  };
  return <button type="button" class="quiet" onClick={toggle}>{theme === 'dark' ? 'Light' : 'Dark'} theme</button>;
}

function Page({ lab, bind }) {
  const [, setDrawn] = useState(0);
  const [said, setSaid] = useState('');
  const [restored, setRestored] = useState(0);
  const redraw = useCallback(() => setDrawn((drawn) => drawn + 1), []);
  // The same text twice is told twice: a blank that is not heard makes it another.
  const say = useCallback((text) => setSaid((was) => (was === text ? `${text}\u00a0` : text)), []);
  useEffect(() => bind({ changed: redraw, loudly: say }), []);

  // The real clock moves the store's. With reduced motion the page moves once a second.
  useEffect(() => {
    let last = performance.now();
    const timer = setInterval(() => {
      const present = performance.now();
      if (!lab.manual) lab.advance(present - last);
      else redraw();
      last = present;
    }, still.matches ? 1_000 : 100);
    return () => clearInterval(timer);
  }, []);

  const context = useMemo(() => ({
    lab,
    say,
    redraw,
    restored,
    setManual(manual) {
      if (lab.manual === manual) return;
      lab.manual = manual;
      say(manual ? 'The clock stands until you move it' : 'The clock runs');
      redraw();
    },
    afterRestore: () => setRestored((times) => times + 1),
  }), [restored]);
  // Only new words touch it: Preact writes an empty text again with every drawing, and a reader may hear that.
  const status = useRef(null);
  useEffect(() => void (status.current.textContent = said), [said]);
  // Everything below reads the store while it draws, so a new context makes it draw.
  const value = { ...context };

  return (
    <LabContext.Provider value={value}>
      <a class="skip" href="#main">Skip to the lab</a>
      <header class="top">
        <a class="brand" href="#main"><img src="./icon.svg" alt="" width="24" height="24" />alkstore</a>
        <nav aria-label="Sections">{NAV.map(([id, word]) => <a key={id} href={`#${id}`}>{word}</a>)}</nav>
        <Theme />
      </header>
      <main id="main" tabIndex={-1}>
        <div class="hero">
          <h1>The lease lab</h1>
          <p>
            Named locks with a deadline, entries, transactions and safe deletion, in {Math.round(facts.size / 1000)}{'\u00a0'}kB of
            WebAssembly and JavaScript. Everything on this page runs on the real package, here in your browser: the owners are
            made up, the store is not.
          </p>
        </div>
        <Locks />
        <Fence />
        <Entries />
        <Lane />
        <Snapshot />
        <Start />
        <Guarantees />
      </main>
      <footer>alkstore {facts.version} · MIT or Apache-2.0 · no cookies, no requests: the page works offline</footer>
      <div class="hidden" role="status" ref={status} />
    </LabContext.Provider>
  );
}

const page = document.getElementById('page');
try {
  const heard = { changed() {}, loudly() {} };
  const lab = await Lab.open({ changed: () => heard.changed(), loudly: (text) => heard.loudly(text) });
  await remember(lab.store, 'greeting', 'hello', 45_000);
  page.replaceChildren();
  render(<Page lab={lab} bind={(handlers) => void Object.assign(heard, handlers)} />, page);
} catch (error) {
  // A policy or a browser that forbids WebAssembly: the package's message says what to allow.
  page.replaceChildren(Object.assign(document.createElement('p'), { className: 'failed', role: 'alert', textContent: `The lab could not start. ${error.message}` }));
}
