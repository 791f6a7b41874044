/** The policy: its file with problems beside the lines, its tests, why a call is decided so, and the grants. */
import { del, get, on, post, put, segment } from "../api.js";
import { Field, Select } from "../fields.js";
import { useStore } from "../store.js";
import { ago, attempt, Button, Card, Code, confirmDialog, dotted, ErrorNote, html, Tag, toast, useEffect, useLoad, useRef, useState } from "../ui.js";

export const EFFECTS = { allow: "ok", ask: "warn", deny: "bad" };

/** A decision and the steps that led to it. */
export const Decision = ({ found }) => html`<div class="decision" role="status">
  <p><${Tag} tone=${EFFECTS[found.effect]}>${found.effect}<//> ${found.reason} <code class="faint">${found.rule}</code></p>
  <ol>${(found.steps || []).map((step) => html`<li>${step}</li>`)}</ol>
</div>`;

/** A rule for an act, as a draft that can be added to the policy. */
export function RuleDraft({ act }) {
  const [effect, setEffect] = useState("allow");
  const [text, setText] = useState("");
  useEffect(() => {
    attempt(post("/policy/rule", { ...act, effect }).then((found) => setText(found.toml)));
  }, [effect]);
  const add = () =>
    attempt(
      get("/policy")
        .then((policy) => put("/policy", { text: `${policy.text.trimEnd()}\n\n${text.trim()}\n`.trimStart(), digest: policy.digest }))
        .then(() => toast("Added to the policy.", "ok")),
    );
  return html`<div class="stack">
    <div class="row">
      <${Select} label="Effect" value=${effect} options=${Object.keys(EFFECTS)} onChange=${setEffect} />
      <span class="grow" />
      <${Button} kind="primary" class="small" action="save" onClick=${add}>Add to the policy<//>
    </div>
    <textarea class="mono" aria-label="Rule" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)} />
  </div>`;
}

/** A problem such as "/folder/policy.toml:12: unknown server" as {line, text}. */
function located(problem) {
  const [, line, text] = /^[^ ]*?:(\d+)[^ ]* (.*)$/s.exec(problem) || [];
  return { line: Number(line), text: text || problem };
}

function Editor({ text, problems, onInput }) {
  const gutter = useRef();
  const marked = new Map(problems.map((problem) => [problem.line, problem.text]));
  return html`<div class="source">
    <pre ref=${gutter} aria-hidden="true">
      ${text.split("\n").map(
        (_, index) => html`<span class=${marked.has(index + 1) ? "marked" : ""} title=${marked.get(index + 1)}>
          ${index + 1}
        </span>`,
      )}
    </pre>
    <textarea class="mono" aria-label="Policy file" data-field="/policy" wrap="off" spellcheck=${false} value=${text}
      onInput=${(event) => onInput(event.target.value)} onScroll=${(event) => {
        gutter.current.scrollTop = event.target.scrollTop;
      }} />
  </div>`;
}

function Why() {
  const tools = useStore((data) => data.catalog?.tools);
  const [draft, setDraft] = useState({ id: "", arguments: "{}", caller: "model" });
  const [found, setFound] = useState(null);
  const field = (name) => ({ name, value: draft[name], onInput: (value) => setDraft({ ...draft, [name]: value }) });
  const ask = async () => {
    let given;
    try {
      given = JSON.parse(draft.arguments || "{}");
    } catch (error) {
      return toast(`The arguments are not JSON: ${error.message}`, "bad");
    }
    return setFound(await attempt(post("/policy/why", { ...draft, kind: "tool", arguments: given })));
  };
  return html`<${Card} title="Check a call against the policy">
    <${Field} label="Tool" list="policy-tools" placeholder="server/tool" ...${field("id")} />
    <datalist id="policy-tools">${tools?.map((tool) => html`<option value=${tool.id} />`)}</datalist>
    <${Field} label="Arguments" lines ...${field("arguments")} />
    <${Field} label="Caller"><${Select} value=${draft.caller} options=${["model", "app", "user"]} onChange=${field("caller").onInput} /><//>
    <${Button} action="why" disabled=${!draft.id} onClick=${ask}>Explain<//>
    ${found && html`<${Decision} found=${found} />`}
  <//>`;
}

function Grants({ grants }) {
  const name = (grant) => `${grant.server}/${grant.name || "*"}`;
  const revoke = async (grant) => {
    if (
      await confirmDialog({
        title: "Revoke this grant?",
        text: `The next use of ${name(grant)} is decided by the policy again.`,
        action: "Revoke",
        danger: true,
      })
    )
      attempt(del(`/grants/${segment(grant.id)}`));
  };
  const facts = (grant) => [
    grant.label || (grant.match && JSON.stringify(grant.match)),
    grant.created && `given ${ago(grant.created)}`,
    grant.expires && `until ${new Date(grant.expires * 1000).toLocaleString("en-GB")}`,
    grant.uses != null && `${grant.uses} uses left`,
  ];
  return html`<${Card} title="Grants">
    ${
      grants.length
        ? grants.map(
            (grant) => html`<div class="grant" key=${grant.id} data-item=${grant.id}>
              <div class="grow">
                <code>${name(grant)}</code> <${Tag}>${grant.scope}<//>
                <p class="faint">${dotted(...facts(grant))}</p>
              </div>
              <${Button} class="small" action="revoke" onClick=${() => revoke(grant)}>Revoke…<//>
            </div>`,
          )
        : html`<p class="faint">None. Approving more than one call creates a grant.</p>`}
  <//>`;
}

const EXAMPLE = `[[test]]
name = "models ask before they read other folders"
server = "files"
tool = "read_file"
args = { path = "/somewhere/else" }
expect = "ask"`;

function Tests({ passed, failed, lines }) {
  if (!passed && !failed) {
    return html`<${Card} title="Tests">
      <p class="soft">The policy has no tests. A test is a table in the same file; it says what the rules must decide:</p>
      <${Code} text=${EXAMPLE} label="Example of a test" />
    <//>`;
  }
  return html`<${Card} title="Tests"
    actions=${html`<${Tag} tone=${failed ? "bad" : "ok"}>${passed} passed, ${failed} failed<//>`}>
    ${lines.length > 0 && html`<${Code} text=${lines.join("\n")} label="Tests" wrap />`}
  <//>`;
}

export default function Policy() {
  const { value: policy, error, again } = useLoad(() => get("/policy"), []);
  const [text, setText] = useState(null);
  const [refusal, setRefusal] = useState(null);
  const [tests, setTests] = useState(null);
  useEffect(() => on("policy", again), []);
  if (!policy) return html`<div class="page"><${ErrorNote} error=${error} /></div>`;
  const close = () => {
    setText(null);
    setRefusal(null);
  };
  const save = () =>
    put("/policy", { text, digest: policy.digest }).then(() => {
      close();
      again();
      toast("Saved.", "ok");
    }, setRefusal);
  const test = async () => setTests(await attempt(post("/policy/test", text === null ? {} : { text })));
  const problems = (refusal ? refusal.message.split("\n") : policy.problems).map(located);
  return html`<div class="page">
    <header class="page-head">
      <h1>Policy</h1><span class="faint cut">${policy.file}</span><span class="grow" />
      <${Button} icon="check" action="test" onClick=${test}>Run tests<//>
      ${text !== null && html`<${Button} onClick=${close}>Discard<//>`}
      <${Button} kind="primary" action="save" disabled=${text === null || text === policy.text} onClick=${save}>Save<//>
    </header>
    <div class="columns wide-first">
      <div>
        <${Editor} text=${text ?? policy.text} problems=${problems} onInput=${setText} />
        ${problems.length > 0 && html`<ul class="problems" aria-live="polite">
            ${problems.map(
              (one) => html`<li>
                <${Tag} tone=${refusal ? "bad" : "warn"}>${one.line ? `line ${one.line}` : "file"}<//> ${one.text}
              </li>`,
            )}
          </ul>`}
        ${policy.exists === false && html`<p class="faint">There is no such file yet; saving creates it.</p>`}
        ${tests && html`<${Tests} ...${tests} />`}
      </div>
      <div><${Why} /><${Grants} grants=${policy.grants} /></div>
    </div>
  </div>`;
}
