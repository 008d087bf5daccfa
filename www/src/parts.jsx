// Small pieces that several sections use.
import { createContext } from 'preact';
import { useContext, useState } from 'preact/hooks';

/** The lab, and `say(text)`, which tells a screen reader what a control did. */
export const LabContext = createContext(null);
export const useLab = () => useContext(LabContext);

export const seconds = (ms) => `${(Math.max(0, ms) / 1000).toFixed(1)} s`;

export const decode = (bytes) => new TextDecoder().decode(bytes);

/** Code that runs, with a button that copies it. */
export function Code({ part, label }) {
  const { say } = useLab();
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(part.text);
      setCopied(true);
      say('Copied');
      setTimeout(() => setCopied(false), 1_500);
    } catch {
      say('The browser does not let this page copy: select the code instead');
    }
  };
  return (
    <figure class="code">
      <figcaption>
        <span>{label}</span>
        <button type="button" class="quiet" onClick={copy} aria-label={`Copy: ${label}`}>{copied ? 'Copied' : 'Copy'}</button>
      </figcaption>
      {/* The markup was made from our own source when the page was built. */}
      <pre tabIndex={0} role="region" aria-label={`Code: ${label}`}><code dangerouslySetInnerHTML={{ __html: part.html }} /></pre>
    </figure>
  );
}

/** A section: its title and lead, the controls, and beside them the code that they run. */
export function Section({ id, title, lead, code, children }) {
  return (
    <section id={id} aria-labelledby={`${id}-title`}>
      <div class="head">
        <h2 id={`${id}-title`}>{title}</h2>
        <p>{lead}</p>
      </div>
      <div class="bench">
        <div class="work">{children}</div>
        {code && <div class="codes">{code}</div>}
      </div>
    </section>
  );
}

/** What a control did, said beside it. */
export const Said = ({ text, bad }) => <p class={`said${bad ? ' bad' : ''}${text ? '' : ' none'}`}>{text || ' '}</p>;

/** Keeps the focus where it is, which `disabled` would lose, and still does nothing. */
export function Button({ off, onClick, children, ...rest }) {
  return (
    <button type="button" aria-disabled={off ? 'true' : undefined} onClick={(event) => !off && onClick(event)} {...rest}>
      {children}
    </button>
  );
}
