/**
 * Running things, and what was run.
 *   Runner {kind, id, verb, schema?, target?: values → id, complete?, connection?, structured?, actions?, onRun?}
 *     form, run, cancel, save, result, earlier calls
 *   CallResult {id}     a call with its progress and result
 *   Arguments {value}   arguments as lines
 */
import { post, segment } from "../api.js";
import { InboxCard } from "../catalog.js";
import { Result } from "../result.js";
import { check, initial, SchemaForm } from "../schema_form.js";
import { cancelCall, link, loadSaved, navigate, pending, removeSaved, runCall, useCall, useRoute, useStore } from "../store.js";
import {
  ago, attempt, Button, bytes, Card, confirmDialog, Copy, Dialog, Diff, Dot, dotted, Empty, html, Icon, plural, seconds, Spinner, Split,
  Tag, toast, useRef, useState, VirtualList,
} from "../ui.js";

const STATES = {
  running: ["busy", "Running"],
  done: ["ok", "Result"],
  failed: ["bad", "Failed"],
  denied: ["warn", "Denied"],
  cancelled: ["", "Cancelled"],
};
const drafts = new Map(); // What was filled in, by item, while the page lives.
const isError = (call) => call.is_error && call.state === "done"; // A call that was denied is no error of the tool.
const State = ({ call }) => html`<${Dot} state=${isError(call) ? "bad" : STATES[call.state][0]} label=${call.state} />`;

export function Runner({ kind, id, verb = "Run", schema, target = () => id, complete, connection, structured, actions, onRun }) {
  const { query } = useRoute();
  const calls = useStore((data) =>
    data.calls.filter((call) => call.kind === kind && (call.target === id || query.call === call.id)).slice(0, 30),
  );
  const shownId = query.call || (schema ? null : calls[0]?.id);
  const shown = calls.find((call) => call.id === shownId);
  const asked = useStore((data) => pending(data.inbox).filter((item) => calls.some((call) => call.id === item.call)));
  const [value, setValue] = useState(
    () => drafts.get(id) ?? (shown && kind !== "resource" ? shown.arguments : null) ?? (schema && initial(schema)) ?? {},
  );
  const [tried, setTried] = useState(false);
  const [naming, setNaming] = useState(false);
  const form = useRef();
  const problems = schema ? check(schema, value) : {};
  const change = (next) => (drafts.set(id, next), setValue(next));
  const open = (call) => navigate(`${location.pathname}?call=${segment(call.id)}`, { replace: true });
  const run = async (event) => {
    event.preventDefault();
    setTried(true);
    if (Object.keys(problems).length) return setTimeout(() => form.current.querySelector("[aria-invalid=true]")?.focus());
    onRun?.();
    const call = await attempt(runCall({ kind, id: target(value), arguments: kind === "resource" ? undefined : value }));
    if (call) open(call);
  };
  const buttons = html`<div class="row">
    ${
      shown?.state === "running"
        ? html`<${Button} icon="stop" action="cancel" onClick=${() => attempt(cancelCall(shown.id))}>Cancel<//>`
        : html`<${Button} kind="primary" icon="play" action="run" type="submit">${verb}<//>`}
    <${Button} icon="saved" action="save" onClick=${() => setNaming(true)}>Save call<//>${actions}
    <span class="grow"></span>
    ${connection && html`<span class="faint">
        Copy as ${copies(id, connection, structured).map(
          ([label, text]) => html`<${Copy} key=${label} label=${label} text=${() => text(value)} />`,
        )}
      </span>`}
  </div>`;
  const onKeyDown = (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && run(event);
  return html`
    ${asked.map((item) => html`<${InboxCard} key=${item.id} item=${item} />`)}
    <form ref=${form} novalidate onSubmit=${run} onKeyDown=${onKeyDown}>
      ${
        schema
          ? html`<${Card} title="Arguments">
            <${SchemaForm} json schema=${schema} value=${value} onChange=${change} problems=${tried ? problems : {}}
              complete=${complete && ((name, text) => complete(name, text, value))} />
            ${buttons}
          <//>`
          : html`<div class="actions">${buttons}</div>`}
    </form>
    ${shownId && html`<${CallResult} key=${shownId} id=${shownId} />`}
    <${Earlier} calls=${calls.filter((call) => call !== shown)}
      onOpen=${(call) => (kind !== "resource" && change(call.arguments || {}), open(call))} />
    ${naming && html`<${Save} kind=${kind} id=${target(value)} value=${value} call=${shownId} onClose=${() => setNaming(false)} />`}`;
}

function Save({ kind, id, value, call, onClose }) {
  const submit = async (event) => {
    event.preventDefault();
    const name = event.target.elements.name.value.trim();
    await attempt(
      post("/saved", { name, kind, id, arguments: value, call })
        .then(loadSaved)
        .then(() => (toast(`“${name}” is saved under Calls`), onClose())),
    );
  };
  return html`<${Dialog} title="Save call" onClose=${onClose}>
    <form class="stack" onSubmit=${submit}>
      <label class="stack"><span>Name</span><input name="name" required autofocus defaultValue=${id} /></label>
      <p class="faint">A saved call runs again with one click and shows what changed. Secrets are masked.</p>
      <div class="row end"><button class="button primary" data-action="confirm">Save</button></div>
    </form>
  <//>`;
}

export function CallResult({ id }) {
  const call = useCall(id);
  const asked = useStore((data) => pending(data.inbox).some((item) => item.call === id));
  if (!call) return html`<${Card}><${Spinner} label="Loading" /><//>`;
  const { state, progress, task, changes } = call;
  const waits = asked ? "Waiting for your answer" : "Waiting for the server";
  const part = progress && `${progress.progress}${progress.total ? ` of ${progress.total}` : ""}`;
  const words = dotted(isError(call) ? "The tool reports an error" : STATES[state][1], seconds(call.seconds), bytes(call.bytes));
  return html`<${Card} class="outcome" data-call=${id} data-state=${state}
    title=${html`<${State} call=${call} />${words}`}
    actions=${task && html`<${Tag} tone="accent" title=${task.message}>task ${task.status}<//>`}>
    <div class="stack" aria-live="polite">
      ${
        state === "running"
          ? html`
            <progress aria-label="Progress" max=${progress?.total || 1} value=${progress?.total ? progress.progress : null} />
            <span class="faint">${(!asked && (progress?.message || task?.message || part)) || waits}</span>`
          : call.result || call.error || call.truncated || state !== "done"
            ? html`<${Result} call=${call} />`
            : html`<${Spinner} label="Loading" />`}
      ${
        changes &&
        (changes.same
          ? html`<p class="note"><${Icon} name="check" />The same result as last time.</p>`
          : html`
            <h3>Changed since the last run</h3><${Diff} lines=${changes.lines} />`)
      }
    </div>
  <//>`;
}

const Earlier = ({ calls, onOpen }) =>
  calls.length > 0 &&
  html`<${Card} title="Earlier calls">
    <div class="earlier">
      ${calls.slice(0, 8).map(
        (call) => html`<button type="button" key=${call.id} onClick=${() => onOpen(call)}>
          <${State} call=${call} />
          <span class="mono cut grow">${summary(call.arguments)}</span>
          <span class="faint">${dotted(call.by !== "you" && call.by, seconds(call.seconds), ago(call.started))}</span>
        </button>`,
      )}
    </div>
  <//>`;

const summary = (value) =>
  Object.entries(value || {})
    .map(([name, item]) => `${name}=${typeof item === "string" ? item.slice(0, 60).replace(/\s+/g, " ") : JSON.stringify(item)}`)
    .join("  ") || "no arguments";

export const Arguments = ({ value }) => html`<dl class="args mono">
  ${Object.entries(value || {}).map(
    ([name, item]) => html`<div key=${name}>
      <dt>${name}</dt>
      <dd>${typeof item === "string" ? item : JSON.stringify(item, null, 2)}</dd>
    </div>`,
  )}
  ${!Object.keys(value || {}).length && html`<div><dt>no arguments</dt></div>`}
</dl>`;

// --- The same call elsewhere

const quoted = (text) => (/^[\w./:=@-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`);
const LITERALS = { true: "True", false: "False", null: "None" };
const python = (value) =>
  JSON.stringify(value, null, 4)
    .replace(/("(?:[^"\\]|\\.)*")|\b(true|false|null)\b/g, (all, text, word) => text || LITERALS[word])
    .replace(/\n/g, "\n        ");

const HEADERS = ["Content-Type: application/json", "Accept: application/json, text/event-stream"];
const curl = (url, headers, method, params, id = { id: 1 }) =>
  ["curl", quoted(url), ...[...HEADERS, ...headers].map((header) => `-H ${header.includes("$") ? `"${header}"` : quoted(header)}`)]
    .concat("-d", quoted(JSON.stringify({ jsonrpc: "2.0", ...id, method, params })))
    .join(" ");

/** A request of the newest revision says everything itself; before that, a session is needed. */
function curlCall({ url, revision, handshake }, name, value) {
  const call = { name, arguments: value };
  const client = { name: "curl", version: "1" };
  if (!handshake) {
    const key = "io.modelcontextprotocol/";
    const _meta = { [`${key}protocolVersion`]: revision, [`${key}clientInfo`]: client, [`${key}clientCapabilities`]: {} };
    const headers = [`MCP-Protocol-Version: ${revision}`, "Mcp-Method: tools/call", `Mcp-Name: ${name}`];
    return `${curl(url, headers, "tools/call", { ...call, _meta })}\n`;
  }
  const session = ["Mcp-Session-Id: $session", `MCP-Protocol-Version: ${revision}`];
  const start = curl(url, [], "initialize", { protocolVersion: revision, capabilities: {}, clientInfo: client });
  return `session=$(${start} -s -o /dev/null -D - | tr -d '\\r' | sed -n 's/^mcp-session-id: //Ip')
${curl(url, session, "notifications/initialized", {}, {})}
${curl(url, session, "tools/call", call)}
`;
}

/** The call for elsewhere: [label, (arguments) => text]. */
function copies(id, connection, structured) {
  const { transport, url, config, command, revision } = connection;
  const name = id.slice(id.indexOf("/") + 1);
  const place = url || [].concat(command || id.split("/")[0]).join(" ");
  const target = config ? `-c ${quoted(config)} ${quoted(id)}` : `${quoted(place)} ${quoted(name)}`;
  const web = transport === "http" && url && revision && /^[\x21-\x7e]+$/.test(name);
  return [
    ["CLI", (value) => `trunkline call ${target} --args ${quoted(JSON.stringify(value))}`],
    [
      "Python",
      (value) => `import asyncio

from trunkline import Client


async def main() -> None:
    async with Client(${JSON.stringify(place)}) as client:
        result = await client.call_tool(${JSON.stringify(name)}, ${python(value)})
        print(result.${structured ? "data" : "text"})


asyncio.run(main())
`,
    ],
    web && ["curl", (value) => curlCall(connection, name, value)],
  ].filter(Boolean);
}

// --- The view of all calls

export default function Calls({ path: [id] }) {
  const [calls, saved] = useStore((data) => [data.calls, data.saved]);
  const rows = [
    saved.length && { header: "Saved" },
    ...saved.map((entry) => ({ entry, id: entry.id })),
    calls.length && { header: "Latest" },
    ...calls,
  ].filter(Boolean);
  const chosen = calls.find((call) => call.id === id);
  const again = async (entry) => {
    const call = await attempt(runCall({}, `/saved/${segment(entry.id)}/run`));
    if (call) navigate(link("calls", call.id));
  };
  const remove = async (entry) =>
    (await confirmDialog({
      title: `Remove “${entry.name}”?`,
      text: "The saved call and its last result are removed.",
      action: "Remove",
      danger: true,
    })) && attempt(removeSaved(entry.id));
  const render = (row) => {
    const { header, entry } = row;
    if (header) return html`<div class="group"><b>${header}</b></div>`;
    if (entry)
      return html`<div class="item" data-saved=${entry.id}>
        <div class="item-head">
          <b>${entry.name}</b><span class="grow"></span>
          <${Button} kind="quiet" icon="play" action="run-saved" aria-label=${`Run ${entry.name}`} onClick=${() => again(entry)} />
          <${Button} kind="quiet" icon="close" aria-label=${`Remove ${entry.name}`} onClick=${() => remove(entry)} />
        </div>
        <p>${entry.last?.summary || entry.target}</p>
      </div>`;
    return html`<a class="item" data-item=${row.id} href=${link("calls", row.id)}
      aria-current=${row.id === id ? "page" : null}>
      <div class="item-head">
        <${State} call=${row} /><b>${row.target}</b><span class="grow"></span>
        <span class="faint">${ago(row.started)}</span>
      </div>
      <p>${row.by === "you" ? "" : `${row.by} · `}${summary(row.arguments)}</p>
    </a>`;
  };
  if (!id && !rows.length) {
    return html`<div class="page">
      <h1>Calls</h1>
      <${Empty} icon="calls" title="No calls yet">
        What you run, and what a chat or an app calls, is listed here with its result. <a href="/tools">Choose a tool</a>
      <//>
    </div>`;
  }
  return html`<${Split} label="Calls" open=${!!id} back="/calls" list=${html`
      <div class="list-head"><h1>Calls</h1></div>
      <${VirtualList} rows=${rows} label="Calls" height=${(row) => (row.header ? 36 : 56)} skip=${(row) => row.header}
        keyOf=${(row) => row.header || row.id} render=${render} />`}>
    ${
      id
        ? html`
          <div class="head">
            <h1>${chosen?.target || "Call"}</h1>
            ${chosen && html`<p class="soft">
                ${`By ${chosen.by}, ${ago(chosen.started)} · `}
                <a href=${`${link(`${chosen.kind}s`, chosen.target)}?call=${segment(id)}`}>Open the ${chosen.kind}</a>
              </p>`}
          </div>
          ${chosen && html`<${Card} title="Arguments"><${Arguments} value=${chosen.arguments} /><//>`}
          <${CallResult} key=${id} id=${id} />`
        : html`<${Empty} icon="calls" title=${plural(calls.length, "call")}>
          Choose one to see its arguments and its result.
        <//>`}
  <//>`;
}
