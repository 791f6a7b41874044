/**
 * The frame of the page: top bar with the search, navigation, what waits for an answer, and the view of the path.
 * A view is a module of ./views whose default export is a component; it gets {path, query} and is loaded on first use.
 * main.js sets data-view on <main>; a view renders what is inside it: <Split ...>, or <div class="page">.
 */
import { on, setToken } from "./api.js";
import { headline, link, navigate, pending, start, useRoute, useStore } from "./store.js";
import {
  Button, count, Dialog, Dot, Empty, ErrorNote, Icon, html, Overlays, plural, render, Spinner, toast, useEffect, useErrorBoundary, useRef,
  useState, VirtualList,
} from "./ui.js";

/** [view, title, key after "g"] in the order of the navigation; null is a gap. */
const VIEWS = [
  ["tools", "Tools", "t"],
  ["resources", "Resources", "r"],
  ["prompts", "Prompts", "p"],
  ["skills", "Skills", "k"],
  ["apps", "Apps", "x"],
  null,
  ["inbox", "Inbox", "i"],
  ["chat", "Chat", "c"],
  ["calls", "Calls", "h"],
  null,
  ["traffic", "Traffic", "f"],
  ["dashboard", "Dashboard", "d"],
  ["audit", "Audit", "a"],
  ["policy", "Policy", "y"],
];
const TITLES = Object.fromEntries([...VIEWS.filter(Boolean), ["servers", "Servers", "s"]].map((view) => [view[0], view]));
const FILES = { apps: "app_view" };
const STYLED = ["chat", "traffic", "dashboard", "audit", "policy", "servers"]; // Views with rules in views.css.
const modules = new Map();

let styles = null;

/** Load the second style sheet, once; again after a failure. */
function loadStyles() {
  styles ??= new Promise((resolve, reject) => {
    const onerror = () => {
      styles = null;
      reject(new Error("views.css is missing"));
    };
    const sheet = { rel: "stylesheet", href: "/static/views.css", onload: resolve, onerror };
    document.head.append(Object.assign(document.createElement("link"), sheet));
  });
  return styles;
}

/** Load a view's module; another try is possible after a failure. */
function useView(name) {
  const [, again] = useState(0);
  const entry = modules.get(name);
  useEffect(() => {
    if (modules.get(name)?.View || !TITLES[name]) return;
    Promise.all([import(`./views/${FILES[name] || name}.js`), STYLED.includes(name) && loadStyles()])
      .then(
        ([module]) => modules.set(name, { View: module.default }),
        (error) => modules.set(name, { error: { message: `This view could not be loaded: ${error.message}` } }),
      )
      .finally(() => again((n) => n + 1));
  }, [name]);
  return entry;
}

function View({ at }) {
  const entry = useView(at.view);
  const [broken, reset] = useErrorBoundary((error) => console.error(error));
  useEffect(() => broken && reset(), [at]);
  if (!TITLES[at.view]) return html`<${Empty} icon="search" title="No such page"><a href="/tools">Go to the tools</a><//>`;
  const error = broken ? { message: `This view failed: ${broken.message}` } : entry?.error;
  if (error) return html`<div class="page"><${ErrorNote} error=${error} /></div>`;
  return entry ? html`<${entry.View} path=${at.path} query=${at.query} />` : html`<div class="page"><${Spinner} label="Loading" /></div>`;
}

// --- Search over everything

const KINDS = { tool: "tools", resource: "resources", template: "resources", prompt: "prompts", skill: "skills" };

/** One pass: names that start with the words first, then names that contain them, then the rest. */
function find(index, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const ranks = [[], [], []];
  for (const row of index) {
    let rank = 0;
    for (const word of words) {
      if (!row.hay.includes(word)) {
        rank = 3;
        break;
      }
      const at = row.key.indexOf(word);
      rank = Math.max(rank, at < 0 ? 2 : at > 0 ? 1 : 0);
    }
    if (rank < 3) ranks[rank].push(row);
  }
  return ranks.flat();
}

function TopSearch() {
  const [index, counts] = useStore((data) => [data.index, data.state?.counts]);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [open, setOpen] = useState(false);
  const input = useRef();
  const hits = open ? find(index, text) : [];
  const go = (row) => {
    setOpen(false);
    setText("");
    input.current.blur();
    navigate(link(KINDS[row.kind], row.id));
  };
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt(Math.max(0, Math.min(hits.length - 1, at + step)));
    else if (event.key === "Enter" && hits[at]) go(hits[at]);
    else if (event.key === "Escape") {
      setOpen(false);
      input.current.blur();
    } else return;
    event.preventDefault();
  };
  const [tools, resources, prompts] = ["tools", "resources", "prompts"].map((name) => counts?.[name] || 0);
  const listed = [plural(tools, "tool"), plural(resources + (counts?.templates || 0), "resource"), plural(prompts, "prompt")];
  const what = counts ? listed.join(", ") : "everything";
  return html`<div class="search" role="search"
    onFocusOut=${(event) => event.currentTarget.contains(event.relatedTarget) || setOpen(false)}>
    <${Icon} name="search" />
    <input id="search" ref=${input} type="search" value=${text} placeholder=${`Search ${what}`}
      aria-label="Search everything" autocomplete="off" spellcheck=${false} role="combobox"
      aria-expanded=${open && !!text} aria-controls="hits" aria-activedescendant=${hits[at] ? `hit-${at}` : null}
      onFocus=${() => setOpen(true)} onKeyDown=${onKeyDown}
      onInput=${(event) => (setText(event.target.value), setAt(0), setOpen(true))} />
    <kbd aria-hidden="true">/</kbd>
    ${
      open &&
      text.trim() &&
      html`<div class="hits" id="hits">
        ${
          hits.length
            ? html`
              <${VirtualList} rows=${hits} height=${48} label="Results" selected=${at}
                keyOf=${(row) => row.kind + row.id} render=${(
                  row,
                  i,
                ) => html`<a class="hit ${i === at ? "on" : ""}" id=${`hit-${i}`} data-hit=${row.id}
                  href=${link(KINDS[row.kind], row.id)} onClick=${(event) => (event.preventDefault(), go(row))}>
                  <${Icon} name=${KINDS[row.kind]} />
                  <span class="hit-text"><b>${row.name}</b><span>${row.text}</span></span>
                  <span class="faint">${row.server}</span>
                </a>`} />
              <div class="hits-foot" role="status">${plural(hits.length, "match").replace("matchs", "matches")}</div>`
            : html`<div class="hits-foot" role="status">Nothing matches “${text.trim()}”</div>`}
      </div>`}
  </div>`;
}

// --- Frame

const THEMES = { auto: "light", light: "dark", dark: "auto" };

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("trunkline.theme") || "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("trunkline.theme", theme);
  }, [theme]);
  return html`<${Button} kind="quiet" icon=${theme} action="theme"
    aria-label=${`Colours: ${theme}. Change to ${THEMES[theme]}`} title=${`Colours: ${theme}`}
    onClick=${() => setTheme(THEMES[theme])} />`;
}

function Top({ onMenu, onKeys }) {
  const [title, model, mode] = useStore((data) => [data.state?.title, data.state?.model, data.state?.mode]);
  return html`<header class="top">
    <${Button} kind="quiet" class="menu" icon="menu" aria-label="Menu" onClick=${onMenu} />
    <a class="logo" href="/tools" aria-label="Trunkline"><${Logo} /><span>Trunkline</span></a><${TopSearch} />
    <div class="where">
      <b title=${title}>${title}</b>${mode && mode !== "console" && html`<span>${mode}</span>`}
      ${model && html`<span>${model}</span>`}
    </div>
    <${Theme} />
    <${Button} kind="quiet" icon="keys" aria-label="Keyboard" title="Keyboard (?)" onClick=${onKeys} />
  </header>`;
}

const Logo = () =>
  html`<svg class="mark" viewBox="0 0 22 16" aria-hidden="true">
    <path d="M1 2h20M1 14h20" /><path d="M4 8h14" stroke-dasharray="0 3.5" />
  </svg>`;

function Nav({ view, at, onPick }) {
  const [counts, waiting, servers, apps] = useStore((data) => [
    data.state?.counts,
    pending(data.inbox).length,
    data.servers,
    data.catalog?.tools.filter((tool) => tool.app).length,
  ]);
  const number = {
    tools: counts?.tools,
    resources: counts && (counts.resources || 0) + (counts.templates || 0),
    prompts: counts?.prompts,
    skills: counts?.skills,
    inbox: waiting,
    apps,
  };
  return html`<nav class="nav" aria-label="Views" onClick=${onPick}>
    ${VIEWS.filter((entry) => apps || entry?.[0] !== "apps").map((entry, i) =>
      entry
        ? html`<a key=${entry[0]} href="/${entry[0]}" class=${entry[0] === "inbox" && waiting ? "ask" : ""}
          aria-current=${view === entry[0] ? "page" : null}>
          <${Icon} name=${entry[0] === "apps" ? "app" : entry[0]} />${entry[1]}
          ${number[entry[0]] ? html`<span class="count" data-count=${number[entry[0]]}>${count(number[entry[0]])}</span>` : null}
        </a>`
        : html`<hr key=${i} />`,
    )}
    <div class="nav-head">
      <a href="/servers" aria-current=${view === "servers" && !at ? "page" : null}>Servers</a>
      <a class="button quiet" href="/servers?add" aria-label="Add a server" title="Add a server"><${Icon} name="plus" /></a>
    </div>
    ${servers.map(
      (server) => html`<a class="srv" key=${server.name} data-server=${server.name} href=${link("servers", server.name)}
        title=${server.reason} aria-current=${view === "servers" && at === server.name ? "page" : null}>
        <${Dot} state=${server.state} /><span class="cut">${server.name}</span>
        <span class="count">${["ready", "partial", "known"].includes(server.state) ? server.tools : server.state}</span>
      </a>`,
    )}
  </nav>`;
}

/** On top of every view but the inbox itself: the first thing that waits. */
function Attention({ view }) {
  const waiting = useStore((data) => pending(data.inbox));
  const [item] = waiting;
  if (!item || view === "inbox") return null;
  const [text, name] = headline(item);
  return html`<a class="attention" href=${link("inbox", item.id)} data-attention=${item.id}>
    <span class="dot warn"></span><span class="cut">${text} <b>${name}</b></span>
    ${waiting.length > 1 && html`<span class="more">and ${waiting.length - 1} more</span>`}
    <span class="button primary">Review</span>
  </a>`;
}

/** Why the page is not complete now. A server that starts again keeps its era, and its part of the catalog. */
function Incomplete() {
  const text = useStore(({ connected, servers }) => {
    const starting = servers.filter((server) => server.state === "starting" && !server.era).length;
    return connected === false ? "Reconnecting…" : starting > 0 && `Starting ${starting} of ${plural(servers.length, "server")}…`;
  });
  return text && html`<div class="lost" role="status"><${Spinner} />${text}</div>`;
}

function Keys({ onClose }) {
  const rows = [
    ["/", "Search"],
    ["↑ ↓", "Move in a list"],
    ["Enter", "Open"],
    ["Ctrl Enter", "Run the form"],
    ["a", "Allow once (on the focused request)"],
    ["d", "Deny"],
    ["Esc", "Close"],
    ["?", "This page"],
  ];
  for (const [, title, key] of Object.values(TITLES)) if (key) rows.push([`g ${key}`, title]);
  return html`<${Dialog} title="Keyboard" onClose=${onClose}>
    <dl class="keys">
      ${rows.map(
        ([key, text]) => html`<div key=${key}>
          <dt>${key.split(" ").map((part) => html`<kbd>${part}</kbd>`)}</dt><dd>${text}</dd>
        </div>`,
      )}
    </dl>
  <//>`;
}

function useKeys(onHelp) {
  useEffect(() => {
    let prefix = 0;
    const onKey = (event) => {
      if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest?.("input, textarea, select, dialog, [contenteditable]"))
        return;
      const target = performance.now() - prefix < 1200 && Object.values(TITLES).find((view) => view[2] === event.key);
      prefix = event.key === "g" ? performance.now() : 0;
      if (target) navigate(`/${target[0]}`);
      else if (event.key === "/") document.getElementById("search").focus();
      else if (event.key === "?") onHelp();
      else return;
      event.preventDefault();
      event.stopImmediatePropagation(); // The letter after "g" is not an answer in the inbox.
    };
    addEventListener("keydown", onKey, true);
    return () => removeEventListener("keydown", onKey, true);
  }, []);
}

on("notice", ({ text, level }) => toast(text, ["error", "warning"].includes(level) ? "bad" : ""));
on("reloaded", ({ problem }) => toast(problem ? `Not reloaded: ${problem}` : "Reloaded", problem ? "bad" : ""));
on("inbox", ({ item }) => {
  // Only if the person has allowed it (a button in the inbox), and does not look at the page anyway.
  if (globalThis.Notification?.permission !== "granted" || document.hasFocus()) return;
  const note = new Notification("Trunkline", { body: headline(item).join(" "), tag: item.id });
  note.onclick = () => (focus(), navigate(link("inbox", item.id)));
});

function useTitle(view) {
  const [waiting, title] = useStore((data) => [pending(data.inbox).length, data.state?.title]);
  useEffect(() => {
    document.title = `${waiting ? `(${waiting}) ` : ""}${TITLES[view]?.[1] || "Trunkline"} · ${title || "Trunkline"}`;
  }, [waiting, view, title]);
}

/** Why the file under development does not load: the code before it runs. */
function LoadProblem() {
  const problem = useStore((data) => data.state.load_problem);
  return problem && html`<${ErrorNote} error=${{ message: problem.text, data: problem }} />`;
}

function App() {
  const at = useRoute();
  const [connected, state] = useStore((data) => [data.connected, data.state]);
  const [menu, setMenu] = useState(false);
  const [keys, setKeys] = useState(false);
  useKeys(() => setKeys(true));
  useTitle(at.view);
  useEffect(() => {
    if (!at.view && state) navigate(state.servers?.length ? "/tools" : "/servers", { replace: true });
  }, [at.view, state]);
  if (!state)
    return html`<div class="boot">
      ${
        connected === false
          ? html`<${Empty} icon="warn" title="The console does not answer">
            Is the command still running? This page tries again by itself.
          <//>`
          : html`<${Spinner} label="Loading" />`}
    </div>`;
  return html`<div class="frame ${menu ? "menu-open" : ""}">
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.getElementById("main").focus())}>
      Skip to the content
    </a>
    <${Top} onMenu=${() => setMenu(!menu)} onKeys=${() => setKeys(true)} />
    <${Nav} view=${at.view} at=${at.path[0]} onPick=${() => setMenu(false)} />
    <main id="main" tabIndex="-1" data-view=${at.view}>
      <${Incomplete} /><${LoadProblem} /><${Attention} view=${at.view} />${at.view && html`<${View} key=${at.view} at=${at} />`}
    </main>
    ${keys && html`<${Keys} onClose=${() => setKeys(false)} />`}
  </div>`;
}

function Login() {
  const refused = useStore((data) => data.refused);
  const submit = (event) => {
    event.preventDefault();
    const given = event.target.elements.token.value.trim();
    setToken(decodeURIComponent(/#token=([^&\s]+)/.exec(given)?.[1] || given));
    start();
  };
  return html`<main class="boot">
    <form class="card login" onSubmit=${submit}>
      <div class="logo"><${Logo} /><span>Trunkline</span></div><h1>Open the address from the terminal</h1>
      <p class="soft">This page needs the token that the command printed when it started. Open that address again, or paste it here.</p>
      <${ErrorNote} error=${refused && { message: "This is not the token that the command printed, or the page was opened twice." }} />
      <label class="stack">
        <span>Address or token</span>
        <input name="token" required autofocus autocomplete="off" spellcheck=${false} placeholder="http://127.0.0.1:…/#token=…" />
      </label>
      <button class="button primary" data-action="login">Open the console</button>
    </form>
  </main>`;
}

function Root() {
  const known = useStore((data) => data.token);
  return html`${known ? html`<${App} />` : known === null && html`<${Login} />`}<${Overlays} />`;
}

render(html`<${Root} />`, document.getElementById("root"));
start();
