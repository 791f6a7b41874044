/**
 * What waits for a person: approvals, questions of servers, sampling, changed definitions.
 *   InboxCard {item, focus?}    one of them with its answers; also shown in other views
 * No answer is possible in the first half second of a card, nor after the cards moved: a click or a key that was meant
 * for something else must not approve anything.
 */
import { post, segment, WINDOW } from "../api.js";
import { Blocks } from "../result.js";
import { check, initial, SchemaForm } from "../schema_form.js";
import { headline, link, pending, useStore } from "../store.js";
import { ago, attempt, Button, Code, Diff, dotted, Empty, html, Icon, Tag, toast, useEffect, useLayoutEffect, useRef, useState } from "../ui.js";
import { Arguments } from "./calls.js";

const SETTLE = 500; // Milliseconds.

export default function Inbox({ path: [id] }) {
  const [inbox, blocked] = useStore((data) => [data.inbox, data.blocked]);
  const open = pending(inbox);
  const closed = inbox.filter((item) => item.closed);
  const order = open.map((item) => item.id).join();
  const [permission, setPermission] = useState(globalThis.Notification?.permission);
  return html`<div class="page inbox">
    <div class="card-head">
      <h1>Inbox</h1>
      ${permission === "default" && html`<${Button} icon="bell" action="notify"
          onClick=${async () => setPermission(await Notification.requestPermission())}>
          Notify me on this desktop
        <//>`}
    </div>
    ${!open.length && html`<${Empty} icon="inbox" title="No open questions">
        Calls that need your approval and questions from servers appear here.
      <//>`}
    ${open.map((item, i) => html`<${InboxCard} key=${item.id} item=${item} order=${order} focus=${id ? item.id === id : i === 0} />`)}
    ${blocked.length > 0 && html`<${Blocked} items=${blocked} />`}
    ${closed.length > 0 && html`
        <h2 class="section">Answered</h2>
        ${closed.map(
          (item) => html`<div class="answered" key=${item.id} data-inbox=${item.id} data-outcome=${item.closed.outcome}>
            <${Tag} tone=${{ allowed: "ok", answered: "ok", denied: "bad" }[item.closed.outcome]}>${item.closed.outcome}<//>
            <span class="cut grow" title=${headline(item).join(" ")}>
              ${headline(item).join(" ")}
              ${item.closed.text && html`<span class="faint">  ${item.closed.text}</span>`}
            </span>
            <span class="faint">${item.closed.window && item.closed.window !== WINDOW ? "in another window" : ""}</span>
            <span class="faint">${ago(item.closed.at)}</span>
          </div>`,
        )}`}
  </div>`;
}

/** Changed definitions that the user blocked, in this host or an earlier one. */
function Blocked({ items }) {
  const again = (item) => attempt(post(`/inbox/${segment(item.id)}/unblock`));
  return html`
    <h2 class="section">Blocked</h2>
    ${items.map(
      (item) => html`<div class="answered" key=${item.id} data-blocked=${item.item}>
        <${Tag} tone="bad">blocked<//>
        <span class="cut grow">The changed ${item.act} <b class="mono">${item.item}</b> is hidden</span>
        <${Button} class="small" action="unblock" onClick=${() => again(item)}>Review again<//>
      </div>`,
    )}`;
}

export function InboxCard({ item, order, focus }) {
  const [ready, setReady] = useState(false);
  const [busy, setBusy] = useState(false);
  const box = useRef();
  // Before it is painted: no click may come between the move and this.
  useLayoutEffect(() => {
    setReady(false);
    const timer = setTimeout(() => setReady(true), SETTLE);
    return () => clearTimeout(timer);
  }, [item.id, order]);
  useEffect(() => {
    if (focus && !document.activeElement?.matches("input, textarea, select")) box.current.focus({ preventScroll: false });
  }, [focus]);
  const answer = async (body) => {
    setBusy(true);
    try {
      await post(`/inbox/${segment(item.id)}`, body);
    } catch (error) {
      setBusy(false);
      toast(error.message, error.code === "answered" ? "" : "bad");
    }
  };
  const onKeyDown = (event) => {
    if (event.target !== box.current || event.ctrlKey || event.metaKey || event.altKey || event.repeat || !ready || busy) return;
    const button = { a: "[data-key=a]", d: "[data-key=d]" }[event.key];
    if (button) box.current.querySelector(button)?.click();
  };
  const Body = (!item.view && BODIES[item.kind]) || Question; // What an app asks for has no fields.
  const [text, name] = headline(item);
  return html`<section class="card ask" ref=${box} tabIndex="0" data-inbox=${item.id} data-kind=${item.kind}
    aria-label=${`${text} ${name}`} onKeyDown=${onKeyDown}>
    <div class="card-head">
      <h2>
        ${text} ${
          item.kind === "approval"
            ? html`<a class="mono" href=${link("tools", item.item)}>${name}</a>`
            : html`<span class="mono">
              ${name}
            </span>`}
      </h2>
      <span class="faint"><${Deadline} item=${item} /></span>
    </div>
    <${Body} item=${item} answer=${answer} off=${!ready || busy} />
  </section>`;
}

function Deadline({ item }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const left = item.deadline && Math.max(0, Math.round(item.deadline - Date.now() / 1000));
  return item.deadline ? `${left} s left` : ago(item.created);
}

const Warnings = ({ lines }) =>
  (lines || []).map((text) => html`<div class="note warn" key=${text}><${Icon} name="warn" /><div>${text}</div></div>`);
const Why = ({ lines }) => html`<p class="why faint">${dotted(...lines)}</p>`;
const Deny = ({ off, onClick, children = "Deny" }) =>
  html`<span class="grow"></span><${Button} kind="danger" action="deny" data-key="d" disabled=${off} onClick=${onClick}>${children}<//>`;

/** The answers that allow something, each with what it will remember: three in sight, the others on demand. */
function Allows({ choices, off, onPick, values, children }) {
  const button = ({ scope, label }, i, more) =>
    html`<${Button} key=${scope} kind=${i ? "" : "primary"} action=${i ? "remember" : "allow"}
      data-key=${i ? null : "a"} data-remember=${scope} disabled=${off} onClick=${() => onPick(scope, more)}>
      ${label}
    <//>`;
  const [near, far] = [choices.slice(0, 3), choices.slice(3)];
  return html`
    <div class="row">${near.map((choice, i) => button(choice, i))}${children}</div>
    <ul class="scopes faint">
      ${near.filter((choice) => choice.detail).map(({ scope, label, detail }) => html`<li key=${scope}><b>${label}</b> ${detail}</li>`)}
    </ul>
    ${far.length > 0 && html`<details class="scopes faint">
        <summary>More ways to allow it</summary>
        ${far.map((choice) =>
          choice.scope === "alike"
            ? html`<${Alike} values=${values} detail=${choice.detail} button=${(more) => button(choice, 1, more)} />`
            : html`<div class="scope" key=${choice.scope}>
              ${button(choice, 1)}<span>${choice.detail}</span>
            </div>`,
        )}
      </details>`
    }`;
}

/** Arguments like these: one of them may differ, and may have to match a pattern. */
function Alike({ values, detail, button }) {
  const [vary, setVary] = useState("");
  const [like, setLike] = useState("");
  const pick = ({ target: { value: name } }) => {
    const value = values[name];
    setVary(name);
    setLike(typeof value === "string" && value.includes("/") ? value.replace(/[^/]*$/, "*") : ""); // Its folder, as a proposal.
  };
  const pointer = `/${vary.replace(/~/g, "~0").replace(/\//g, "~1")}`;
  return html`
    <div class="scope">${button(vary ? { vary: pointer, like: like || undefined } : undefined)}<span>${detail}</span></div>
    <div class="row">
      <label class="row">
        may vary <select value=${vary} onChange=${pick}>
          <option value="">nothing</option>
          ${Object.keys(values || {}).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
        </select>
      </label>
      ${vary && html`<label class="row">
          like <input class="short mono" value=${like} placeholder="anything" onInput=${(event) => setLike(event.target.value)} />
        </label>`}
    </div>`;
}

function Approval({ item, answer, off }) {
  const [edited, setEdited] = useState(null);
  const schema = item.definition?.inputSchema || {};
  const problems = edited ? check(schema, edited) : {};
  const sources = [].concat(item.tainted_by || []).join(", ");
  const tainted = sources ? [`The request may come from the content of ${sources}, not from you.`] : [];
  const choices = item.remember?.length ? item.remember : [{ scope: "once", label: "Allow once" }];
  const allow = (scope, more) => answer({ allow: true, remember: scope, ...more, ...(edited ? { arguments: edited } : {}) });
  return html`
    ${item.description && html`<p class="soft">${item.description}</p>`}
    ${
      edited
        ? html`<${SchemaForm} json schema=${schema} value=${edited} onChange=${setEdited} problems=${problems} />`
        : html`<${Arguments} value=${item.arguments} />`}
    ${item.command && html`<p class="faint">Runs <code>${[].concat(item.command).join(" ")}</code></p>`}
    <${Warnings} lines=${[...(item.warnings || []), ...tainted]} />
    ${item.changed?.length > 0 && html`<${Diff} lines=${item.changed} />`}<${Why} lines=${[item.reason]} />
    <${Allows} choices=${choices} off=${off || Object.keys(problems).length > 0} onPick=${allow}
      values=${item.arguments}>
      ${item.editable && html`<${Button} icon="edit" action="edit" onClick=${() => setEdited(edited ? null : item.arguments || {})}>
          ${edited ? "Undo changes" : "Edit…"}
        <//>`}
      <${Deny} off=${off} onClick=${() => answer({ allow: false })} />
    <//>`;
}

const dollars = (cost) => (cost == null ? null : `at most $${cost.toFixed(4)}`);
const ONCE = [
  { scope: "once", label: "Allow once" },
  {
    scope: "session",
    label: "Allow this session",
    detail: "Further requests of this server are sent without asking you, until the console is closed.",
  },
];
const textIn = (content) => (content?.type === "text" ? content : null);

/** Text of a message, editable; other content is shown. */
function Editable({ label, content, onChange, server }) {
  const text = textIn(content);
  return html`<label class="stack">
    <span class="faint">${label}</span>
    ${
      text
        ? html`<textarea rows="3" value=${text.text} onInput=${(event) => onChange({ ...text, text: event.target.value })} />`
        : html`<${Blocks} blocks=${[].concat(content)} server=${server} />`}
  </label>`;
}

function SamplingRequest({ item, answer, off }) {
  const [request, setRequest] = useState(item.request);
  const [model, setModel] = useState(item.model);
  const [context, setContext] = useState(false);
  const put = (members) => setRequest({ ...request, ...members });
  const allow = (remember) =>
    answer({
      allow: true,
      remember,
      ...(request !== item.request ? { request } : {}),
      ...(model !== item.model ? { model } : {}),
      ...(item.context ? { context } : {}),
    });
  return html`
    <div class="stack">
      ${request.systemPrompt != null && html`<label class="stack">
          <span class="faint">system prompt</span>
          <textarea rows="2" data-field="/systemPrompt" value=${request.systemPrompt}
            onInput=${(event) => put({ systemPrompt: event.target.value })} />
        </label>`}
      ${request.messages.map(
        (message, i) => html`<${Editable} key=${i} label=${message.role} content=${message.content}
          server=${item.server}
          onChange=${(content) => put({ messages: request.messages.with(i, { ...message, content }) })} />`,
      )}
      <div class="row">
        ${item.models?.length > 1 && html`<label class="row faint">
            model <select value=${model} onChange=${(event) => setModel(event.target.value)}>
              ${item.models.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
            </select>
          </label>`}
        <label class="row faint">
          at most <input class="short" inputmode="numeric" value=${request.maxTokens}
            onInput=${(event) => put({ maxTokens: Number(event.target.value) || request.maxTokens })} /> tokens
        </label>
        ${item.context && html`<label class="check">
            <input type="checkbox" checked=${context} onChange=${(event) => setContext(event.target.checked)} />
            Include the requested context
          </label>`}
      </div>
    </div>
    <${Warnings} lines=${item.notes} />
    <${Why} lines=${[
          ...(item.why || []),
          item.input_tokens && `${item.input_tokens} tokens to send`,
          dollars(item.most_cost),
          item.requests_left !== null && `${item.requests_left} requests left`,
        ]} />
    <${Allows} choices=${ONCE} off=${off} onPick=${allow}><${Deny} off=${off} onClick=${() => answer({ allow: false })} /><//>`;
}

function SamplingResponse({ item, answer, off }) {
  const [content, setContent] = useState(item.response?.content);
  const allow = (remember) =>
    answer({ allow: true, remember, ...(content !== item.response.content ? { response: { ...item.response, content } } : {}) });
  return html`
    <${Editable} label=${item.response?.model || item.model} content=${content} onChange=${setContent} server=${item.server} />
    <${Warnings} lines=${item.notes} />
    <${Why} lines=${[item.usage && `${item.usage.input} + ${item.usage.output} tokens`, item.cost != null && `$${item.cost.toFixed(4)}`]} />
    <${Allows} choices=${[
          { scope: "once", label: "Deliver" },
          {
            scope: "session",
            label: "Deliver, and do not ask this session",
            detail: "Further answers are delivered to this server without a review, until the console is closed.",
          },
        ]} off=${off} onPick=${allow}>
      <${Deny} off=${off} onClick=${() => answer({ allow: false })}>Withhold<//>
    <//>`;
}

function Form({ item, answer, off }) {
  const [value, setValue] = useState(() => initial(item.schema) ?? {});
  const [tried, setTried] = useState(false);
  const problems = check(item.schema, value);
  const send = (event) => {
    event.preventDefault();
    setTried(true);
    if (!Object.keys(problems).length && !off) answer({ action: "accept", content: value });
  };
  return html`
    <p>${item.message}</p>
    <form novalidate onSubmit=${send}>
      <${SchemaForm} titles schema=${item.schema} value=${value} onChange=${setValue} problems=${tried ? problems : {}} />
      <p class="why faint">Your answer is sent to ${item.server}. Never enter a password or a token.</p>
      <div class="row">
        <${Button} kind="primary" type="submit" action="accept" disabled=${off}>Send<//>
        <${Button} action="cancel" disabled=${off} onClick=${() => answer({ action: "cancel" })}>Not now<//>
        <${Deny} off=${off} onClick=${() => answer({ action: "decline" })}>Decline<//>
      </div>
    </form>`;
}

/** A page to open, or what an app asks for. */
function Question({ item, answer, off }) {
  const open = () => {
    // The host has checked it: http or https. In the click itself, as a browser opens no tab without one.
    if (/^https?:/i.test(item.url)) window.open(item.url, "_blank", "noopener,noreferrer");
    answer({ action: "accept" });
  };
  return html`
    <p>${item.message}</p>
    ${item.text != null && html`<${Code} wrap text=${item.text} />`}
    ${item.url && html`<p class="code address mono">${item.before}<mark>${item.host}</mark>${item.after}</p>`}
    <${Warnings} lines=${item.warnings} />
    <div class="row">
      <${Button} kind="primary" icon=${item.url ? "external" : "check"} action="accept" disabled=${off} onClick=${open}>
        ${item.url ? `Open ${item.host}` : "Allow"}
      <//>
      ${item.kind === "url" && html`<${Button} action="cancel" disabled=${off} onClick=${() => answer({ action: "cancel" })}>Not now<//>`}
      <${Deny} off=${off} onClick=${() => answer({ action: "decline" })}>Decline<//>
    </div>`;
}

const Pin = ({ item, answer, off }) => html`
  <${Diff} lines=${item.lines} />
  <p class="why faint">
    Until you accept the change, the ${item.act} is hidden or needs approval for each use. Read it: it may contain instructions for the model.
  </p>
  <div class="row">
    <${Button} kind="primary" action="accept" disabled=${off} onClick=${() => answer({ action: "accept" })}>Accept the change<//>
    <${Deny} off=${off} onClick=${() => answer({ action: "block" })}>Block<//>
  </div>`;

const BODIES = { approval: Approval, sampling_request: SamplingRequest, sampling_response: SamplingResponse, form: Form, pin: Pin };
