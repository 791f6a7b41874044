/**
 * Components and helpers that all views share. Everything of Preact and htm is exported from here too.
 *
 *   Icon {name: of ICONS, label?}   Dot {state: of a server, or a tone; label?}   Tag {tone}   Effect {value}
 *   Button {kind: "primary"|"danger"|"quiet", icon, busy, action (data-action), ...attributes}
 *   Card {title, tone: "ask"|"bad", actions}     tone: "ok"|"warn"|"bad"|"accent"|""
 *   Tabs, Chips {label, tabs: [{id, label, count?}], value, onChange}     Tabs {small}
 *   VirtualList {rows, height: px | (row) => px, render: (row, index) => vnode, keyOf, label, selected: index,
 *                skip: (row) => true for headings, follow: stay at the end}; arrow keys move the focus
 *   Split {label, open: the detail instead of the list if narrow, back: path, list, children}
 *   Dialog {title, onClose, actions, wide}   Empty {icon, title}   ErrorNote {error}   Spinner {label}
 *   KeyValue {items: [[name, value]]}   Diff {lines}   Code, Copy, Search
 *   attempt(promise) → value; shows an error as a toast
 *   useLoad(load, deps) → {value, error, loading, again}     lazy(load, name) → a component of a module loaded on first use
 *
 * Texts of servers are only children or attributes of vnodes: nothing here parses HTML.
 */
import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "../vendor/preact-htm.module.js";

export * from "../vendor/preact-htm.module.js";

export const ICONS = {
  tools: "M9.8 2.3a3.6 3.6 0 0 0-3.5 5L2 11.6 4.4 14l4.3-4.3a3.6 3.6 0 0 0 4.9-4.3L11.4 7.6 9 7l-.6-2.4z",
  resources: "M4 1.8h5.2L12.5 5v9.2H4zM9 2v3.2h3.3M6.2 8.5h4M6.2 11h4",
  prompts: "M2.2 3h11.6v8H8l-3.4 2.8V11H2.2zM5 6h6M5 8.3h3.6",
  skills: "M8 3.6C6.6 2.6 4.6 2.3 2 2.5v10c2.6-.2 4.6.1 6 1.1 1.4-1 3.4-1.3 6-1.1v-10c-2.6-.2-4.6.1-6 1.1zM8 3.6v10",
  inbox: "M2 9.5 4 3h8l2 6.5V13H2zM2 9.5h3.6c.2 1.3 1.2 2 2.4 2s2.2-.7 2.4-2H14",
  chat: "M8 2.5c3.5 0 6 2.2 6 5s-2.5 5-6 5c-.9 0-1.7-.1-2.4-.4L2.5 13.5l.9-2.6C2.5 10 2 8.8 2 7.5c0-2.8 2.5-5 6-5z",
  calls: "M8 2.2a5.8 5.8 0 1 1-5.5 4M2.3 2.8v3.5h3.5M8 5v3.2l2.2 1.4",
  traffic: "M2 5.5h11M10 2.5l3 3-3 3M14 11H3M6 8l-3 3 3 3",
  dashboard: "M2 13.5h12M3.7 11V8M8 11V3M12.3 11V5.5",
  audit: "M3 2h10v12H3zM5.5 5.5l1 1L8.3 4.6M5.5 10l1 1 1.8-1.9M10 6h1M10 10.5h1",
  policy: "M8 1.8 13 3.6v4c0 3-2 5.3-5 6.6-3-1.3-5-3.6-5-6.6v-4zM5.8 7.8l1.6 1.6 2.9-3",
  servers: "M2.5 2.5h11v4.7h-11zM2.5 8.8h11v4.7h-11zM5 4.8h.1M5 11.1h.1",
  search: "M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9zM10.3 10.3 14 14",
  light:
    "M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6zM8 1.2v1.3M8 13.5v1.3M1.2 8h1.3M13.5 8h1.3M3.2 3.2l.9.9M11.9 11.9l.9.9M12.8 3.2l-.9.9M4.1 11.9l-.9.9",
  dark: "M13.5 9.7A5.8 5.8 0 0 1 6.3 2.5a5.8 5.8 0 1 0 7.2 7.2z",
  auto: "M8 2.2a5.8 5.8 0 1 1 0 11.6A5.8 5.8 0 0 1 8 2.2zM8 2.2v11.6M8 5l4-1.2M8 8.5l5.7-1M8 12l4.5-1",
  keys: "M6.2 6.1a1.9 1.9 0 1 1 2.6 1.8c-.5.2-.8.6-.8 1.1v.4M8 11.4v.1M8 2.2a5.8 5.8 0 1 1 0 11.6A5.8 5.8 0 0 1 8 2.2z",
  copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
  check: "M3 8.5 6.3 12 13 4.5",
  close: "M4 4l8 8M12 4l-8 8",
  down: "M4 6l4 4 4-4",
  back: "M13 8H3M7 4 3 8l4 4",
  plus: "M8 3v10M3 8h10",
  download: "M8 2v8M4.7 7 8 10.2 11.3 7M2.5 13.5h11",
  play: "M4.5 2.8v10.4l8.5-5.2z",
  stop: "M4 4h8v8H4z",
  saved: "M4 2h8v12l-4-3.2L4 14z",
  external: "M6.5 3H3v10h10V9.5M9 2.5h4.5V7M13.5 2.5 7.5 8.5",
  warn: "M8 2.2 14.5 13.5h-13zM8 6.5v3.2M8 11.6v.1",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  bell: "M4 11V7a4 4 0 0 1 8 0v4l1 1.3H3zM6.8 14h2.4",
  again: "M13.5 8A5.5 5.5 0 1 1 11.8 4M13.5 2v3.2h-3.2",
  link: "M6.7 9.3a2.6 2.6 0 0 0 3.7 0l2.2-2.2a2.6 2.6 0 0 0-3.7-3.7l-.8.8M9.3 6.7a2.6 2.6 0 0 0-3.7 0L3.4 8.9a2.6 2.6 0 0 0 3.7 3.7l.8-.8",
  edit: "M3 13h2.2l7.6-7.6-2.2-2.2L3 10.8zM9 4.8l2.2 2.2",
  app: "M2.5 3h11v10h-11zM2.5 6h11M4.5 4.6h.1M6.3 4.6h.1",
};

export function Icon({ name, label }) {
  return html`<svg class="icon" viewBox="0 0 16 16" role=${label ? "img" : null} aria-label=${label}
    aria-hidden=${label ? null : "true"}>
    <path d=${ICONS[name] || ""} />
  </svg>`;
}

export function Button({ kind = "", icon, busy, action, children, class: extra = "", ...rest }) {
  return html`<button type="button" class="button ${kind} ${extra}" data-action=${action} aria-busy=${busy || null}
    disabled=${busy || rest.disabled} ...${rest}>
    ${busy ? html`<${Spinner} />` : icon && html`<${Icon} name=${icon} />`}${children}
  </button>`;
}

export const Spinner = ({ label }) =>
  html`<span class="spinner" role=${label ? "status" : null}>${label && html`<span class="sr">${label}</span>`}</span>`;

export const Tag = ({ tone = "", title, children }) => html`<span class="tag ${tone}" title=${title}>${children}</span>`;

const EFFECTS = { reads: "ok", writes: "warn", destroys: "bad" };
export const Effect = ({ value }) =>
  value &&
  (value === "unknown"
    ? html`<${Tag} title="The server does not say whether it changes anything">effect unknown<//>`
    : html`<${Tag} tone=${EFFECTS[value]} title="According to the server's annotations">${value}<//>`);

const STATES = {
  ready: "ok",
  partial: "warn",
  starting: "busy",
  waiting: "warn",
  "needs login": "warn",
  unapproved: "warn",
  broken: "bad",
  misconfigured: "bad",
};
/** A status is a dot and a word; where only the dot is seen, the word is for screen readers. */
export const Dot = ({ state, label = state }) => html`<span class="dot ${STATES[state] || state}"><span class="sr">${label}</span></span>`;

export const Card = ({
  title,
  tone = "",
  actions,
  children,
  class: extra = "",
  ...rest
}) => html`<section class="card ${tone} ${extra}" ...${rest}>
  ${(title || actions) && html`<div class="card-head"><h2>${title}</h2>${actions && html`<div class="row">${actions}</div>`}</div>`}
  ${children}
</section>`;

export function Tabs({ label, tabs, value, onChange, small }) {
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = tabs.findIndex((tab) => tab.id === value);
    onChange(tabs[(at + step + tabs.length) % tabs.length].id);
    event.currentTarget.children[(at + step + tabs.length) % tabs.length].focus();
  };
  return html`<div class="tabs ${small ? "small" : ""}" role="tablist" aria-label=${label} onKeyDown=${onKeyDown}>
    ${tabs.map(
      (tab) => html`<button type="button" role="tab" key=${tab.id} data-tab=${tab.id} aria-selected=${tab.id === value}
        tabIndex=${tab.id === value ? 0 : -1} onClick=${() => onChange(tab.id)}>
        ${tab.label}
        ${tab.count ? html` <span class="count">${tab.count}</span>` : null}
      </button>`,
    )}
  </div>`;
}

export const Chips = ({ label, tabs, value, onChange }) => html`<div class="chips" role="group" aria-label=${label}>
  ${tabs.map(
    (tab) => html`<button type="button" class="chip" key=${tab.id} aria-pressed=${tab.id === value}
      onClick=${() => onChange(tab.id)}>
      ${tab.label}
      ${tab.count ? html` <span class="count">${count(tab.count)}</span>` : null}
    </button>`,
  )}
</div>`;

/** Only the rows in sight (and a few more) are in the document, however many there are. */
export function VirtualList({
  rows,
  height,
  render,
  keyOf = (row, index) => index,
  label,
  selected = -1,
  skip,
  follow,
  class: extra = "",
}) {
  const box = useRef();
  const focus = useRef(null);
  const atEnd = useRef(true);
  const [view, setView] = useState({ top: 0, size: 900 });
  const offsets = useMemo(() => {
    const found = new Float64Array(rows.length + 1);
    for (let i = 0; i < rows.length; i++) found[i + 1] = found[i] + (typeof height === "number" ? height : height(rows[i]));
    return found;
  }, [rows, height]);
  const find = (y) => {
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (offsets[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const measure = () => {
    const { scrollTop: top, clientHeight: size } = box.current;
    atEnd.current = top + size >= offsets[rows.length] - 40;
    setView((old) => (old.top === top && old.size === size ? old : { top, size }));
  };
  const reveal = (index) => {
    const { scrollTop, clientHeight } = box.current;
    if (offsets[index] < scrollTop) box.current.scrollTop = Math.max(0, offsets[index] - 40);
    else if (offsets[index + 1] > scrollTop + clientHeight) box.current.scrollTop = offsets[index + 1] - clientHeight + 8;
  };
  useLayoutEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [offsets]);
  useLayoutEffect(() => {
    if (selected >= 0) reveal(selected);
  }, [selected, rows.length > 0]);
  useLayoutEffect(() => {
    if (follow && atEnd.current) box.current.scrollTop = offsets[rows.length];
    measure();
  }, [offsets]);
  useLayoutEffect(() => {
    if (focus.current === null) return;
    box.current.querySelector(`[data-index="${focus.current}"] :is(a, button, [tabindex])`)?.focus({ preventScroll: true });
    focus.current = null;
  });
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    const row = event.target.closest("[data-index]");
    if (!step || !row || event.target.matches("input, textarea, select")) return;
    event.preventDefault();
    let index = Math.max(0, Math.min(rows.length - 1, +row.dataset.index + step));
    while (skip && rows[index] && skip(rows[index])) index += step > 0 || index === 0 ? 1 : -1;
    if (!rows[index]) return;
    focus.current = index;
    reveal(index);
    const { scrollTop: top, clientHeight: size } = box.current;
    setView({ top, size }); // A new object: renders in any case, and then the focus moves.
  };
  const first = Math.max(0, find(view.top) - 6);
  const last = Math.min(rows.length, find(view.top + view.size) + 7);
  const shown = [];
  for (let i = first; i < last; i++) {
    shown.push(html`<div class="vrow" role="listitem" key=${keyOf(rows[i], i)} data-index=${i}
      aria-setsize=${rows.length} aria-posinset=${i + 1}
      style=${{ height: `${offsets[i + 1] - offsets[i]}px`, transform: `translateY(${offsets[i]}px)` }}>
      ${render(rows[i], i)}
    </div>`);
  }
  return html`<div class="vlist ${extra}" ref=${box} onScroll=${measure} onKeyDown=${onKeyDown}>
    <div role="list" aria-label=${label} style=${{ height: `${offsets[rows.length]}px` }}>${shown}</div>
  </div>`;
}

/** A list and a detail beside it; below 760 px one of them. */
export const Split = ({ label, open, back, list, children }) => html`<div class="split ${open ? "open" : ""}">
  <section class="list" aria-label=${label}>${list}</section>
  <div class="detail" tabIndex="-1">
    ${open && back && html`<a class="back" href=${back}><${Icon} name="back" />${label}</a>`}${children}
  </div>
</div>`;

export function Dialog({ title, onClose, actions, wide, children }) {
  const box = useRef();
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.showModal(); // It focuses the first button, which closes it: a field is what a person came for.
    box.current.querySelector("input, textarea, select")?.focus();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${box} class=${wide ? "wide" : ""} aria-label=${title}
    onCancel=${(event) => (event.preventDefault(), onClose())}
    onClick=${(event) => event.target === box.current && onClose()}>
    <div class="dialog-body">
      <div class="card-head"><h2>${title}</h2><${Button} kind="quiet" icon="close" aria-label="Close" onClick=${onClose} /></div>
      ${children}${actions && html`<div class="row end">${actions}</div>`}
    </div>
  </dialog>`;
}

export const Empty = ({ icon, title, children }) =>
  html`<div class="empty">
    ${icon && html`<span class="empty-icon"><${Icon} name=${icon} /></span>`}<h2>${title}</h2>
    <div>${children}</div>
  </div>`;

export const Code = ({ text, label, wrap }) =>
  html`<div class="code ${wrap ? "wrap" : ""}"><pre tabIndex="0" aria-label=${label}>${text}</pre><${Copy} text=${text} /></div>`;

export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await attempt(navigator.clipboard.writeText(typeof text === "function" ? text() : text));
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="copy" onClick=${copy} aria-label=${label ? null : "Copy"}>
    ${label ? (done ? "Copied" : label) : html`<${Icon} name=${done ? "check" : "copy"} />`}
  </button>`;
}

export const KeyValue = ({ items }) =>
  html`<dl class="kv">
    ${items
      .filter(([, value]) => value != null && value !== "")
      .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;

/** Lines of a unified diff, or of sentences. */
export const Diff = ({ lines }) =>
  html`<pre class="diff" tabIndex="0" aria-label="Changes">
    ${(lines || []).map((line) => html`<span class=${line[0] === "+" ? "added" : line[0] === "-" ? "removed" : ""}>${line + "\n"}</span>`)}
  </pre>`;

export const Search = ({ value, onInput, label, placeholder = label }) => html`<label class="filter">
  <${Icon} name="search" />
  <input type="search" value=${value} aria-label=${label} placeholder=${placeholder}
    onInput=${(event) => onInput(event.target.value)} spellcheck=${false} autocomplete="off" />
</label>`;

export const ErrorNote = ({ error }) =>
  error &&
  html`<div class="note bad" role="alert">
    <${Icon} name="warn" />
    <div><p>${error.message}</p>${error.fix && html`<p class="soft">${error.fix}</p>`}
      ${typeof error.data?.traceback === "string" && html`<${Code} text=${error.data.traceback} label="Traceback" />`}</div>
  </div>`;

// --- Toasts and questions: one layer, rendered once by main.js

const layer = { toasts: [], question: null, changed: () => {} };

export function toast(text, kind = "") {
  const entry = { text, kind };
  const drop = () => {
    layer.toasts = layer.toasts.filter((other) => other !== entry);
    layer.changed();
  };
  entry.drop = drop;
  layer.toasts = [...layer.toasts.filter((other) => other.text !== text).slice(-3), entry];
  layer.changed();
  setTimeout(drop, kind === "bad" ? 9000 : 4500);
}

export const confirmDialog = ({ title, text, action = "Continue", danger = false }) =>
  new Promise((resolve) => {
    layer.question = { title, text, action, danger, resolve };
    layer.changed();
  });

export async function attempt(promise) {
  try {
    return await promise;
  } catch (error) {
    toast(error.fix ? `${error.message} ${error.fix}` : error.message, "bad");
    return undefined;
  }
}

export function Overlays() {
  const [, again] = useReducer((n) => n + 1, 0);
  useEffect(() => void (layer.changed = again), []);
  const { question, toasts } = layer;
  const answer = (value) => {
    layer.question = null;
    again();
    question.resolve(value);
  };
  return html`
    <div class="toasts" aria-live="polite" role="status">
      ${toasts.map(
        (entry) => html`<div class="toast ${entry.kind}" key=${entry}>
          <span>${entry.text}</span>
          <button type="button" onClick=${entry.drop} aria-label="Dismiss"><${Icon} name="close" /></button>
        </div>`,
      )}
    </div>
    ${question && html`<${Dialog} title=${question.title} onClose=${() => answer(false)} actions=${html`
          <${Button} onClick=${() => answer(false)}>Cancel<//>
          <${Button} kind=${question.danger ? "danger" : "primary"} action="confirm" onClick=${() => answer(true)}>${question.action}<//>`}>
        <p class="soft">${question.text}</p>
      <//>`
    }`;
}

// --- Hooks

export function useLoad(load, deps) {
  const [found, setFound] = useState({ loading: true });
  const [turn, again] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    let live = true;
    setFound((old) => ({ ...old, loading: true, key: deps[0] }));
    Promise.resolve(load()).then(
      (value) => live && setFound({ value, loading: false, key: deps[0] }),
      (error) => live && setFound({ error, loading: false, key: deps[0] }),
    );
    return () => (live = false);
  }, [...deps, turn]);
  // What was loaded for another item is not shown for this one, not even for a moment.
  return { ...(found.key === deps[0] ? found : { loading: true }), again };
}

/** A component of a module that is loaded when it is first shown. */
export function lazy(load, name) {
  let module;
  return function Lazy(props) {
    const [error, setError] = useState(null);
    const [, again] = useReducer((n) => n + 1, 0);
    useEffect(() => {
      if (!module) load().then((loaded) => again((module = loaded)), setError);
    }, []);
    if (module) return html`<${module[name]} ...${props} />`;
    return error ? html`<${ErrorNote} error=${error} />` : html`<${Spinner} label="Loading" />`;
  };
}

// --- Texts

export const seconds = (n) =>
  n == null
    ? ""
    : n < 1
      ? `${Math.round(n * 1000)} ms`
      : n < 60
        ? `${n.toFixed(1)} s`
        : `${Math.floor(n / 60)} min ${Math.round(n % 60)} s`;
export const count = (n) => (n < 1000 ? String(n) : n < 1e6 ? `${(n / 1000).toFixed(n < 10_000 ? 1 : 0)}k` : `${(n / 1e6).toFixed(1)}M`);
export const bytes = (n) =>
  n == null ? "" : n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1000).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`;
/** The number of bytes that a base64 text stands for. */
export const base64Size = (text) => Math.floor((text.replace(/=+$/, "").length * 3) / 4);
export const plural = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
/** Texts beside each other; those that are missing are left out. */
export const dotted = (...parts) => parts.filter(Boolean).join(" · ");
export const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
export function ago(at) {
  const passed = Date.now() / 1000 - at;
  if (passed < 5) return "now";
  if (passed < 60) return `${Math.floor(passed)} s ago`;
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86_400) return `${Math.floor(passed / 3600)} h ago`;
  return new Date(at * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}
