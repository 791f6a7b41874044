/** Tools: what each one does, a form to run it, its page if it has one, and its definition. */
import { InboxCard, CatalogView, Runner } from "../catalog.js";
import { data, pending, useStore } from "../store.js";
import { ago, Card, Code, dotted, Effect, html, Icon, KeyValue, lazy, plural, Tabs, Tag, useState } from "../ui.js";

const AppView = lazy(() => import("./app_view.js"), "AppView");

const DECISIONS = { allow: ["ok", "allowed for models"], ask: ["warn", "models must ask"], deny: ["bad", "denied for models"] };
const ABOUT_APPROVAL = "Whether a call of a model or an app needs your approval; a call that you start does not.";

const FILTERS = [
  { id: "reads", label: "read-only", test: (tool) => tool.effect === "reads" },
  { id: "changes", label: "changes things", test: (tool) => tool.effect !== "reads" },
  { id: "asks", label: "needs approval", test: (tool) => tool.decision !== "allow" },
];

const row = (tool) => html`
  <div class="item-head">
    <b>${tool.name}</b>
    ${tool.effect !== "unknown" && html`<${Effect} value=${tool.effect} />`}
    ${tool.changed && html`<${Icon} name="warn" label="The definition changed" />`}
    ${tool.flagged && html`<${Icon} name="warn" label="Suspicious definition" />`}<span class="grow"></span>
    <span class="faint" title=${ABOUT_APPROVAL}>${dotted(tool.app && "app", { ask: "approval", deny: "denied" }[tool.decision])}</span>
  </div>
  <p>${tool.description || tool.title}</p>`;

function tags({ effect, decision, tokens, task, pin }) {
  const [tone, words] = DECISIONS[decision.effect] || ["", decision.effect];
  return html`
    <${Effect} value=${effect} />
    <${Tag} tone=${tone} title=${[decision.rule, decision.reason].filter(Boolean).join(": ")}>${words}<//>
    ${task && html`<${Tag} tone="accent">task ${task}<//>`}
    <span class="faint">${plural(tokens, "token")}${pin?.since ? ` · unchanged since ${ago(pin.since)}` : ""}</span>`;
}

export default function Tools({ path: [id] }) {
  const tools = useStore((data) => data.catalog?.tools);
  return html`<${CatalogView} kind="tool" id=${id} rows=${tools} filters=${FILTERS} row=${row} tags=${tags}
    detail=${Tool} text=${html`Choose one to see what it does and to run it. Press <kbd>/</kbd> to search all servers.`} />`;
}

function Tool({ item }) {
  const { id, definition } = item;
  // Those of models and apps; the form below shows what its own calls ask.
  const waiting = useStore((data) =>
    pending(data.inbox).filter(
      (entry) => entry.kind === "approval" && entry.item === id && !data.calls.some((call) => call.id === entry.call),
    ),
  );
  const [tab, setTab] = useState("try");
  const app = item.app ? [{ id: "app", label: "App" }] : [];
  const tabs = [{ id: "try", label: "Try it" }, ...app, { id: "definition", label: "Definition" }];
  return html`
    ${waiting.map((entry) => html`<${InboxCard} key=${entry.id} item=${entry} />`)}
    <${Tabs} label="Tool" value=${tab} onChange=${setTab} tabs=${tabs} />
    ${tab === "try" && html`<${Runner} kind="tool" id=${id} schema=${definition.inputSchema || {}} connection=${item.connection}
        structured=${!!definition.outputSchema} />`}
    ${tab === "app" && html`<${App} tool=${id} />`}
    ${tab === "definition" && html`
        <${Card} title="A model's call"><${KeyValue} items=${Object.entries(item.decision)} /><//>
        <${Card} title="Definition"><${Code} text=${JSON.stringify(definition, null, 2)} label="Definition" /><//>`
    }`;
}

/** The page of the tool (MCP Apps), with the result of the last call before it was opened. */
function App({ tool }) {
  const [call] = useState(() => data.calls.find((call) => call.target === tool && call.state === "done")?.id);
  return html`<${AppView} tool=${tool} call=${call} />`;
}
