// What a reader needs to begin, and to decide.
import facts from 'virtual:facts';
import { Code } from './parts.jsx';

const PROMISES = [
  ['At most one live lease per name', 'at any instant of the store’s clock', 'Mutual exclusion of effects outside', 'a holder may stall: check the token where the effect happens'],
  ['Tokens that only rise', 'per lock, through lapse, purge, restore and restart', 'Exact lapse times', 'timers run late where a tab is frozen or a machine sleeps'],
  ['Fenced writes', 'the lease and the write are judged in one step', 'Sharing between tabs', 'memory is per realm: two tabs that each open a store share nothing'],
  ['All or nothing', 'transactions are serialisable over their keys', 'Durability in memory', 'a reload forgets, unless you saved a snapshot'],
  ['Losing is a value', 'null or false; an error is never reported as losing', 'Safety when the clock jumps ahead', 'leases lapse early, as documented'],
  ['Bad input changes nothing', 'and its error says what to do', 'A store that outlives a WebAssembly trap', 'it says POISONED from then on: open a new one'],
];

export function Start() {
  return (
    <section id="start" aria-labelledby="start-title">
      <div class="head">
        <h2 id="start-title">Quick start</h2>
        <p>
          One package, no dependencies, no bundler settings, for browsers, workers, Node, Deno and Bun. It brings its
          WebAssembly along.
        </p>
      </div>
      <div class="two">
        <div>
          <Code label="Install" part={facts.install} />
          <Code label="A lease, and a write that it guards" part={facts.start} />
        </div>
        <div>
          <h3>Content security policy</h3>
          <p>This page is served with the policy below. Of it, alkstore itself needs only <code>script-src 'self' 'wasm-unsafe-eval'</code>.</p>
          <pre class="policy" tabIndex={0} role="region" aria-label="The policy of this page"><code>{facts.policy.replaceAll('; ', ';\n')}</code></pre>
        </div>
      </div>
    </section>
  );
}

export function Guarantees() {
  return (
    <section id="guarantees" aria-labelledby="guarantees-title">
      <div class="head">
        <h2 id="guarantees-title">What it promises, and what not</h2>
        <p>A coordination store is only as good as what you may rely on. This is all of it, in memory, as this page uses it.</p>
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Guarantees">
        <table class="promises">
          <thead><tr><th scope="col">You may rely on</th><th scope="col">You may not rely on</th></tr></thead>
          <tbody>
            {PROMISES.map(([yes, how, no, why]) => (
              <tr key={yes}>
                <td><strong>{yes}</strong><br />{how}</td>
                <td><strong>{no}</strong><br />{why}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
