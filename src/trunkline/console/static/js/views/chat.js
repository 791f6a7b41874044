/** The chat: streamed answers with tool calls and approvals inline; without a model, tools run by hand. */
import { del, get, on, post, segment } from "../api.js";
import { Legend, StackBar, seriesClass } from "../charts.js";
import { Field, Select, useEnd } from "../fields.js";
import { Markdown } from "../markdown.js";
import { check, initial, SchemaForm } from "../schema_form.js";
import { data, link, navigate, pending, runCall, useStore } from "../store.js";
import {
  Button, Code, Dialog, Empty, ErrorNote, Icon, Search, ago, attempt, confirmDialog, count, html, seconds, useEffect, useState,
} from "../ui.js";
import { AppView } from "./app_view.js";
import { CallResult } from "./calls.js";
import { InboxCard } from "./inbox.js";

const PICKED = 60; // Rows of a picker; its search finds the others.
const ENDS = ["turn_over", "failed", "saved"];
const at = (id, rest = "") => `/chats/${segment(id)}${rest}`;

/** A conversation after an event of the host. */
function after(chat, event) {
  if (event.kind === "user")
    return { ...chat, running: true, messages: chat.messages.concat(event.message.parts.length ? event.message : []) };
  if (event.kind === "model") return { ...chat, model: event.model };
  const messages = [...chat.messages];
  if (messages.at(-1)?.role !== "model") messages.push({ role: "model", parts: [] });
  const parts = [...messages.at(-1).parts];
  const end = parts.at(-1);
  const { kind, call_id } = event;
  const change = (members) => {
    const index = parts.findIndex((part) => part.call_id === call_id);
    if (index >= 0) parts[index] = { ...parts[index], ...members };
  };
  if (kind === "said")
    end?.type === "text"
      ? (parts[parts.length - 1] = { ...end, text: end.text + event.text })
      : parts.push({ type: "text", text: event.text });
  else if (kind === "proposed") parts.push({ ...event, type: "call", state: "proposed" });
  else if (kind === "began") change({ state: "running" });
  else if (kind === "progressed") change({ progress: event });
  else if (kind === "ended")
    change({
      ...event,
      progress: null,
      state: event.denied ? "denied" : event.cancelled ? "cancelled" : event.is_error ? "error" : "done",
    });
  else if (event.text || event.detail) parts.push({ type: "notice", text: event.text || event.detail });
  messages[messages.length - 1] = { role: "model", parts };
  return { ...chat, messages, running: chat.running && !ENDS.includes(kind) };
}

function useChat(id) {
  const [chat, setChat] = useState(null);
  useEffect(() => {
    setChat(null);
    if (!id) return undefined;
    const load = (over) =>
      get(at(id)).then(
        (found) => setChat({ ...found, running: found.running && over !== true }),
        (error) => (error.status === 404 ? navigate("/chat", { replace: true }) : attempt(Promise.reject(error))),
      );
    load();
    const offs = [
      on("missed", load),
      on("chat", ({ chat: of, event }) => {
        if (of !== id) return;
        setChat((old) => old && after(old, event));
        if (event.kind === "saved") load(true); // With tokens and cost, as the host counted them.
      }),
    ];
    return () => offs.forEach((off) => off());
  }, [id]);
  return chat?.id === id ? chat : null;
}

const TONES = { proposed: "warn", running: "busy", done: "ok", error: "bad", denied: "bad", cancelled: "" };

function Call({ part, item, chat }) {
  const { progress } = part;
  const state = item
    ? "waits for you"
    : progress
      ? progress.message || [progress.progress, progress.total].filter(Boolean).join(" of ")
      : part.state;
  return html`
    <details class="call" data-call=${part.call_id}>
      <summary>
        <i class="dot ${item ? "warn" : TONES[part.state]}" />
        <code><span class="soft">${part.server && `${part.server} / `}</span>${part.tool}</code>
        <code class="cut faint grow">${JSON.stringify(part.arguments)}</code>
        <span class="faint">${state}${part.seconds ? ` · ${seconds(part.seconds)}` : ""}</span>
        <${Icon} name="down" />
      </summary>
      <${Code} text=${JSON.stringify(part.arguments, null, 2)} label="Arguments" wrap />
      ${part.preview && html`<div data-result><${Code} text=${part.preview} label="Result" wrap /></div>`}
    </details>
    ${item && html`<${InboxCard} item=${item} />`}
    ${part.app && html`<${AppView} tool=${`${part.server}/${part.tool}`} call=${part.call_id} chat=${chat} />`}`;
}

function Part({ part, item, chat }) {
  if (part.type === "call") return html`<${Call} part=${part} item=${item} chat=${chat} />`;
  if (part.type === "text") return html`<${Markdown} text=${part.text} />`;
  if (part.type === "notice") return html`<p class="notice faint">${part.text}</p>`;
  return html`<a class="chip" href=${link("resources", `${part.server}/${part.uri}`)}>${part.name || part.uri}</a>`;
}

const Thinking = () => html`<p class="thinking" role="status"><span class="sr">Working</span><i /><i /><i /></p>`;

function Thread({ chat }) {
  const called = new Set(chat.messages.flatMap((message) => message.parts.map((part) => part.call_id)));
  called.delete(undefined);
  const items = useStore((data) => pending(data.inbox).filter((item) => item.caller === "chat" || called.has(item.call)));
  const itemOf = (part) => part.type === "call" && items.find((item) => item.id === part.item || item.call === part.call_id);
  const inline = new Set(chat.messages.flatMap((message) => message.parts.map(itemOf)));
  return html`<div class="thread" ...${useEnd()} role="log" aria-label="Conversation" aria-busy=${chat.running}
    tabIndex="0">
    ${chat.messages.map(
      (message, index) => html`<article key=${index} class="turn ${message.role}"
        aria-label=${message.role === "user" ? "You" : "Model"}>
        ${message.parts.map((part, position) => html`<${Part} key=${position} part=${part} item=${itemOf(part)} chat=${chat.id} />`)}
      </article>`,
    )}
    ${!chat.running && chat.problem && html`<${ErrorNote} error=${{ message: chat.problem }} />`}
    ${
      !chat.running &&
      chat.retriable &&
      html`<${Button} action="retry" onClick=${() => attempt(post(at(chat.id, "/messages"), { retry: true }))}>Try again<//>`
    }
    ${
      chat.running &&
      (items.length
        ? items
            .filter((item) => !inline.has(item))
            .map(
              (item) => html`<${InboxCard} key=${item.id} item=${item} />`,
            )
        : html`<${Thinking} />`)
    }
  </div>`;
}

/** What the next request sends to the model, by server. */
function Account({ chat: { context, usage, cost } }) {
  const parts = context.parts.map((part, index) => ({
    name: part.name,
    value: part.tokens,
    text: count(part.tokens),
    tone: seriesClass(index),
  }));
  const used = `${count(context.used)} of ${count(context.window)} tokens`;
  return html`<details class="account">
    <summary>
      <span class="faint">${used}${cost ? ` · $${cost.toFixed(cost < 1 ? 3 : 2)}` : ""}</span>
      <${StackBar} parts=${parts} whole=${context.window} label="Context: ${used}" />
    </summary>
    <div class="card">
      <${Legend} items=${parts} />
      <p class="faint">The conversation so far: ${count(usage.input)} tokens sent, ${count(usage.output)} received.</p>
    </div>
  </details>`;
}

const Picks = ({ rows, onPick }) => html`<div class="picks">
  ${rows.slice(0, PICKED).map(
    (row) => html`<button type="button" key=${row.kind + row.id} data-item=${row.id} onClick=${() => onPick(row)}>
      <code>${row.name}</code><span class="cut soft grow">${row.text}</span>
      <span class="faint">${row.kind === "prompt" ? "prompt of " : ""}${row.server}</span>
    </button>`,
  )}
  ${rows.length === 0 && html`<p class="faint">Nothing found.</p>`}
</div>`;

function Picker({ onPick, onClose }) {
  const [text, setText] = useState("");
  const [prompt, setPrompt] = useState(null);
  const [values, setValues] = useState({});
  const index = useStore((data) => data.index);
  const rows = ["prompt", "resource"].flatMap((kind) => index.filter((row) => row.kind === kind && row.hay.includes(text.toLowerCase())));
  const pick = (row) => {
    const found = row.kind === "prompt" && data.catalog.prompts.find((one) => one.id === row.id);
    return found?.arguments?.length ? setPrompt(found) : onPick(row, {});
  };
  if (!prompt)
    return html`<${Dialog} title="Attach" onClose=${onClose}>
      <${Search} label="Search resources and prompts" value=${text} onInput=${setText} />
      <${Picks} rows=${rows} onPick=${pick} />
    <//>`;
  const ready = prompt.arguments.every(({ name, required }) => !required || values[name]);
  return html`<${Dialog} title=${prompt.title || prompt.name} onClose=${onClose}
    actions=${html`<${Button} kind="primary" action="attach" disabled=${!ready}
      onClick=${() => onPick({ ...prompt, kind: "prompt" }, values)}>
      Use this prompt
    <//>`}>
    <p class="soft">${prompt.description}</p>
    ${prompt.arguments.map(
      ({ name, description, required }) => html`<${Field} key=${name} name=${name}
        label="${name}${required ? " *" : ""}" hint=${description} value=${values[name] || ""}
        onInput=${(value) => setValues({ ...values, [name]: value })} />`,
    )}
  <//>`;
}

function Composer({ chat, onSend }) {
  const [text, setText] = useState("");
  const [attached, setAttached] = useState([]);
  const [picking, setPicking] = useState(false);
  const prompt = attached.find((row) => row.kind === "prompt");
  const ready = !chat?.running && (text.trim() || prompt);
  const send = () => {
    if (!ready) return;
    onSend({
      text,
      attachments: attached.filter((row) => row !== prompt).map(({ id }) => ({ id })),
      ...(prompt && { prompt: { id: prompt.id, arguments: prompt.values } }),
    });
    setText("");
    setAttached([]);
  };
  const pick = (row, values) => {
    setPicking(false);
    setAttached([
      ...attached.filter((other) => other.id !== row.id && !(prompt && row.kind === "prompt" && other === prompt)),
      { ...row, values },
    ]);
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  };
  return html`<div class="composer">
    ${attached.length > 0 && html`<div class="row">
        ${attached.map(
          (row) => html`<button type="button" class="chip" key=${row.id} aria-label="Remove ${row.name}"
            onClick=${() => setAttached(attached.filter((other) => other !== row))}>
            ${row.name} ×
          </button>`,
        )}
      </div>`}
    <textarea aria-label="Message" placeholder="Ask, or tell the model what to do" data-field="/text" rows="1"
      value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${onKeyDown} />
    <div class="row">
      <${Button} kind="quiet" icon="plus" action="attach" onClick=${() => setPicking(true)}>Attach<//>
      <span class="grow" />
      ${
        chat?.running
          ? html`<${Button} icon="stop" action="cancel" onClick=${() => attempt(post(at(chat.id, "/cancel")))}>Stop<//>`
          : html`<${Button} kind="primary" action="send" disabled=${!ready} onClick=${send}>
            Send
          <//>`}
    </div>
    ${picking && html`<${Picker} onPick=${pick} onClose=${() => setPicking(false)} />`}
  </div>`;
}

function Conversations({ chats, current }) {
  const remove = async (chat) => {
    if (await confirmDialog({ title: "Delete this conversation?", text: chat.title, action: "Delete", danger: true }))
      attempt(del(at(chat.id)).then(() => chat.id === current && navigate("/chat")));
  };
  return html`<section class="list" aria-label="Conversations">
    <div class="list-head row">
      <h1 class="grow">Chat</h1>
      <a class="button small" href="/chat" data-action="new"><${Icon} name="plus" />New</a>
    </div>
    <div class="conversations">
      ${chats.map(
        (chat) => html`<div class="row" key=${chat.id} data-item=${chat.id}>
          <a class="item grow" href=${link("chat", chat.id)} aria-current=${chat.id === current ? "page" : null}>
            <span class="cut">${chat.title || "New chat"}</span><span class="faint">${ago(chat.at)}</span>
          </a>
          <${Button} kind="quiet" icon="close" aria-label="Delete ${chat.title}" onClick=${() => remove(chat)} />
        </div>`,
      )}
    </div>
  </section>`;
}

// --- Without a model

const GuidedCall = ({ call }) =>
  html`
    <article class="turn user" aria-label="You"><code>${call.target} ${JSON.stringify(call.arguments)}</code></article>
    <article class="turn model" aria-label="Result"><${CallResult} id=${call.id} /></article>`;

function GuidedTool({ id, onRun, onBack }) {
  const [tool, setTool] = useState(null);
  const [value, setValue] = useState({});
  const [problems, setProblems] = useState({});
  useEffect(() => {
    attempt(
      get(`/items/tool/${segment(id)}`).then((found) => {
        setTool(found);
        setValue(initial(found.definition.inputSchema));
      }),
    );
  }, [id]);
  const run = () => {
    const found = check(tool.definition.inputSchema, value);
    setProblems(found);
    if (!Object.keys(found).length) onRun(id, value);
  };
  return (
    tool &&
    html`
      <div class="row">
        <h1 class="grow mono">${tool.server} / ${tool.name}</h1>
        <${Button} class="small" onClick=${onBack}>Another tool…<//>
      </div>
      <p class="soft">${tool.description}</p>
      <${SchemaForm} schema=${tool.definition.inputSchema} value=${value} problems=${problems} onChange=${setValue} />
      <div class="row end"><${Button} kind="primary" icon="play" action="run" onClick=${run}>Run<//></div>`
  );
}

function Guided() {
  const [done, setDone] = useState([]);
  const [chosen, setChosen] = useState(null);
  const [text, setText] = useState("");
  const rows = useStore((data) => data.index).filter((row) => row.kind === "tool" && row.hay.includes(text.toLowerCase()));
  const run = (id, values) =>
    attempt(
      runCall({ kind: "tool", id, arguments: values }).then((call) => {
        setDone([...done, call]);
        setChosen(null);
      }),
    );
  return html`<div class="chat-main">
    <h1 class="sr">Chat</h1>
    <div class="thread" ...${useEnd()} role="log" aria-label="Calls" tabIndex="0">
      <p class="note">
        <span>
          There is no model yet, so you choose the tools. To chat, set <code>TRUNKLINE_MODEL</code>
          , for example to <code>ollama:qwen3</code>
          , or <code>ANTHROPIC_API_KEY</code> or <code>OPENAI_API_KEY</code>, and start the console again.
        </span>
      </p>
      ${done.map((call) => html`<${GuidedCall} key=${call.id} call=${call} />`)}
    </div>
    <div class="composer">
      ${
        chosen
          ? html`<${GuidedTool} id=${chosen} onRun=${run} onBack=${() => setChosen(null)} />`
          : html`
            <${Search} label="Search tools" placeholder="Which tool?" value=${text} onInput=${setText} />
            <${Picks} rows=${rows} onPick=${(row) => setChosen(row.id)} />`}
    </div>
  </div>`;
}

export default function Chat({ path: [id] }) {
  const chat = useChat(id);
  const [list, setList] = useState(null);
  const [model, setModel] = useState(null);
  useEffect(() => {
    const load = () => attempt(get("/chats").then(setList));
    load();
    return on("chats", load);
  }, [id]);
  if (!list) return null;
  if (!list.model && !list.models.length) return html`<${Guided} />`;
  const choose = (name, to = id) => {
    setModel(name);
    return to && attempt(post(at(to, "/model"), { model: name }));
  };
  const send = (message) =>
    attempt(
      (async () => {
        const to = id || (await post("/chats")).chat.id;
        if (!id && model) await choose(model, to);
        await post(at(to, "/messages"), message);
        navigate(link("chat", to));
      })(),
    );
  return html`<div class="split chat ${id ? "open" : ""}">
    <${Conversations} chats=${list.chats} current=${id} />
    <div class="chat-main">
      <header class="row">
        ${id && html`<a class="back" href="/chat" aria-label="All chats"><${Icon} name="back" /></a>`}
        <h1 class="cut grow">${chat?.title || "New chat"}</h1>
        ${chat?.context && html`<${Account} chat=${chat} />`}
        <${Select} label="Model" value=${chat?.model || model || list.model}
          options=${[...new Set([...list.models.map(({ name }) => name), chat?.model || list.model])]}
          onChange=${(name) => choose(name)} />
      </header>
      ${
        chat
          ? html`<${Thread} key=${id} chat=${chat} />`
          : html`<div class="thread">
            <${Empty} icon="chat" title="What should be done?">
              The model can use the tools of your servers. Calls that your policy does not allow need your approval.
            <//>
          </div>`}
      <${Composer} key=${id} chat=${chat} onSend=${send} />
    </div>
  </div>`;
}
