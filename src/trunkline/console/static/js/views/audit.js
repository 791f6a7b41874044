/** The audit trail: what was done and by which rule; verify it, ask why, or make a rule from an entry. */
import { get, post } from "../api.js";
import { latency } from "../charts.js";
import { Select } from "../fields.js";
import { useStore } from "../store.js";
import { attempt, Button, Card, clock, Code, dotted, Empty, html, plural, Search, Tag, useEffect, useRef, useState } from "../ui.js";
import { Decision, EFFECTS, RuleDraft } from "./policy.js";

const PAGE = 100;
const OUTCOMES = { ok: "ok", "tool-error": "warn", error: "bad", denied: "bad", lost: "bad", cancelled: "", asked: "" };
const HEADINGS = ["time", "act", "caller", "policy", "decided by", "outcome", "took"];
const moment = (at) => `${new Date(at * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${clock(at)}`;

/** The entries with the begin and the end of an act as one; the newest come first, so an end comes before its begin. */
function joined(entries) {
  const acts = new Map();
  for (const entry of entries) acts.set(entry.stage === "note" ? entry.seq : entry.act_id, { ...entry, ...acts.get(entry.act_id) });
  return [...acts.values()];
}

function Opened({ entry }) {
  const [why, setWhy] = useState(null);
  const [rule, setRule] = useState(false);
  const act = { kind: entry.kind, id: `${entry.server}/${entry.name}`, arguments: entry.arguments || {} };
  const explain = async () => setWhy(await attempt(post("/policy/why", { ...act, caller: entry.caller || "model" })));
  return html`<div class="stack">
    ${entry.arguments != null && html`<${Code} text=${JSON.stringify(entry.arguments, null, 2)} label="Arguments" wrap />`}
    <p class="faint">
      ${dotted(`#${entry.seq}`, entry.rule, entry.session && `session ${entry.session}`, entry.digest, entry.note)}
    </p>
    ${
      entry.server &&
      entry.name &&
      html`<div class="row">
        <${Button} class="small" action="why" onClick=${explain}>Why?<//>
        <${Button} class="small" action="rule" onClick=${() => setRule(!rule)}>Draft a rule from this<//>
      </div>`}
    ${why && html`<${Decision} found=${why} />`}${rule && html`<${RuleDraft} act=${act} />`}
  </div>`;
}

function Entry({ entry, open, onToggle }) {
  const outcome = entry.outcome || entry.stage;
  return html`
    <tr data-item=${entry.seq}>
      <td class="faint"><time>${moment(entry.at)}</time></td>
      <td>
        <button type="button" class="plain-button mono" aria-expanded=${open} onClick=${onToggle}>
          ${[entry.server, entry.name].filter(Boolean).join(" / ") || entry.kind || entry.note}
        </button>
      </td>
      <td>${entry.caller}</td>
      <td>${entry.effect && html`<${Tag} tone=${EFFECTS[entry.effect]}>${entry.effect}<//>`}</td>
      <td><code class="soft">${entry.by}</code></td><td><${Tag} tone=${OUTCOMES[outcome]}>${outcome}<//></td>
      <td>${latency(entry.latency_ms)}</td>
    </tr>
    ${open && html`<tr class="opened"><td colspan="7"><${Opened} entry=${entry} /></td></tr>`}`;
}

export default function Audit() {
  const [filter, setFilter] = useState({ text: "", server: "", outcome: "" });
  const [found, setFound] = useState(null);
  const [open, setOpen] = useState(null);
  const [verdict, setVerdict] = useState(null);
  const turn = useRef(0);
  const names = useStore((data) => data.servers.map((server) => server.name));
  const load = async (before) => {
    const mine = ++turn.current;
    const page = await attempt(get("/audit", { ...filter, before, limit: PAGE }));
    if (page && mine === turn.current)
      setFound((old) => ({ ...page, entries: joined(before ? old.entries.concat(page.entries) : page.entries) }));
  };
  useEffect(() => {
    const timer = setTimeout(load, found ? 150 : 0);
    return () => clearTimeout(timer);
  }, [filter]); // One request after the last key.
  const set = (name, value) => setFilter({ ...filter, [name]: value });
  const choice = (name, label, options) =>
    html`<${Select} label=${name} value=${filter[name]} options=${[["", label], ...options]} onChange=${(value) => set(name, value)} />`;
  return html`<div class="page">
    <header class="page-head">
      <h1>Audit</h1><span class="grow" />
      <${Button} icon="check" action="verify" onClick=${async () => setVerdict(await attempt(post("/audit/verify")))}>Verify the trail<//>
    </header>
    ${verdict && html`<p class="note ${verdict.ok ? "ok" : "bad"}" role="status">
        ${verdict.ok ? `The trail is intact: ${plural(verdict.entries, "entry").replace("entrys", "entries")}.` : verdict.problem}
      </p>`}
    <div class="row filters">
      <${Search} label="Search the trail" placeholder="Tool, rule, argument" value=${filter.text}
        onInput=${(value) => set("text", value)} />
      ${choice("server", "All servers", names)}${choice("outcome", "All outcomes", Object.keys(OUTCOMES))}
    </div>
    ${
      found &&
      (found.entries.length
        ? html`
          <${Card} class="flush">
            <div class="scroll-x" tabIndex="0" role="region" aria-label="Entries">
              <table class="audit">
                <thead><tr>${HEADINGS.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
                <tbody>
                  ${found.entries.map(
                    (entry) => html`<${Entry} key=${entry.seq} entry=${entry} open=${open === entry.seq}
                      onToggle=${() => setOpen(open === entry.seq ? null : entry.seq)} />`,
                  )}
                </tbody>
              </table>
            </div>
          <//>
          ${found.more != null && html`<${Button} action="more" onClick=${() => load(found.more)}>Load more<//>`}`
        : html`<${Empty} icon="audit" title="No entries">Every call, allowed or denied, is recorded here.<//>`)
    }
  </div>`;
}
