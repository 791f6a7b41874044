/**
 * MCP Apps: the page of a server, in two frames on an origin of its own.
 *   AppView {tool, call?, chat?} | {resource} | {view: id}, onClose?     default: /apps/<view or tool>, /apps lists the tools with a page
 * This file checks where a message comes from, passes requests on to the API and brings back the replies, which may come later
 * as events. What is asked about the page is asked above its frame. Nothing that a page sends is ever HTML here.
 */
import { del, get, on, post } from "../api.js";
import { link, navigate, pending, useStore } from "../store.js";
import { Button, Card, Empty, ErrorNote, Spinner, Tag, attempt, html, useEffect, useLayoutEffect, useRef, useState } from "../ui.js";
import { InboxCard } from "./inbox.js";

const SANDBOX = "ui/notifications/sandbox-";
const TALLEST = 900; // Pixels; a page scrolls beyond that.
const PATIENCE = 1000; // Milliseconds for the answer of a page that is closed.
// Names of the specification (after --color-), and ours.
const COLORS =
  `background-primary panel, background-secondary bg, background-tertiary sunken, background-info accent-soft, background-danger bad-soft,
background-success ok-soft, background-warning warn-soft, text-primary ink, text-secondary soft, text-tertiary faint, text-info accent, text-danger bad,
text-success ok, text-warning warn, border-primary line-strong, border-secondary line, ring-primary accent`
    .split(/,\s*/)
    .map((pair) => pair.split(" "));

export default function Apps({ path: [id] }) {
  const apps = useStore((data) => (data.catalog?.tools || []).filter((tool) => tool.app));
  // The id of a view has no slash, that of a tool has one.
  const shown = id?.includes("/") ? { tool: id } : { view: id };
  if (id) return html`<div class="page"><${AppView} key=${id} ...${shown} onClose=${() => navigate("/apps")} /></div>`;
  const open = async (tool) => {
    const view = await attempt(openApp({ tool }));
    if (view) navigate(link("apps", view.view));
  };
  return html`<div class="page">
    <h1>Apps</h1>
    ${!apps.length && html`<${Empty} icon="app" title="No tool has a page">
        Servers can offer pages for the results of their tools (MCP Apps).
      <//>`}
    ${apps.map(
      (tool) => html`<${Card} key=${tool.id} title=${tool.title || tool.name} data-item=${tool.id}
        actions=${html`<${Button} action="open" icon="app" onClick=${() => open(tool.id)}>Open<//>`}>
        <p>${tool.description}</p><p class="mono faint">${tool.id}</p>
      <//>`,
    )}
  </div>`;
}

/** The console's own origin is the only one that may frame the view. */
const openApp = (request) => post("/apps", { ...request, origin: location.origin });

export function AppView({ view: id, tool, call, chat, resource, onClose }) {
  const [view, setView] = useState(null); // With the HTML of its page.
  const [error, setError] = useState(null);
  const [stopped, setStopped] = useState(null);
  const [height, setHeight] = useState(160);
  const frame = useRef();
  const load = async (name, query) => {
    const page = await get(`/apps/${name}/page`, query);
    const found = await get(`/apps/${name}`);
    setStopped(null);
    setView({ ...found, page });
  };
  useEffect(() => {
    let opened = null;
    (id ? load(id) : openApp({ tool, call, chat, resource }).then((made) => load((opened = made.view)))).catch(setError);
    return () => opened && del(`/apps/${opened}`).catch(() => null);
  }, [id, tool, call, chat, resource]);
  // Before the frame can have sent anything.
  useLayoutEffect(() => (view && !stopped ? talk(frame.current, view, { setHeight, setStopped }) : undefined), [view, stopped]);
  if (error) return html`<${ErrorNote} error=${error} />`;
  if (!view) return html`<${Spinner} label="Loading the page" />`;
  const leave = () => frame.current?.leave?.();
  const again = async () => (await leave(), attempt(load(view.view, { again: 1 })));
  const permit = async () => (await attempt(post(`/apps/${view.view}/permissions`, { permissions: view.permissions }))) && again();
  const wanted = view.permissions.filter((name) => !view.granted.includes(name)).map((name) => name.replace("_", " "));
  return html`<${Card} data-app=${view.view} title=${view.title} actions=${html`
      <${Tag} title="It runs in an isolated frame, and can reach only the origins listed here">page of ${view.server}<//>
      <${Button} kind="quiet" icon="again" action="reload" aria-label="Load the page again" onClick=${again} />
      ${onClose && html`<${Button} kind="quiet" icon="close" action="close" aria-label="Close the page"
          onClick=${async () => (await leave(), await attempt(del(`/apps/${view.view}`)), onClose())} />`
      }`}>
    ${view.reaches.length > 0 && html`<p class="faint">It can reach ${view.reaches.join(", ")}.</p>`}
    ${wanted.length > 0 && html`<p class="row">
        It requests access to: ${wanted.join(", ")}. <${Button} action="permit" onClick=${permit}>Allow<//>
      </p>`}
    <${Questions} id=${view.view} />
    ${
      stopped
        ? html`<p role="status" data-stopped>The page was stopped: ${stopped}</p>`
        : html`<iframe key=${view.page} ref=${frame} data-app-frame title=${`${view.title}, a page of ${view.server}`}
          sandbox="allow-scripts allow-same-origin"
          allow=${view.granted.map((name) => name.replace("_", "-")).join("; ")}
          style=${{ display: "block", width: "100%", height: `${height}px`, border: view.border ? "1px solid var(--line)" : "0", borderRadius: "8px" }}
          src=${`${view.url}#${encodeURIComponent(location.origin)}`} />`}
  <//>`;
}

/** What the page asks for, and what is asked about its calls; the same items are in the inbox. */
function Questions({ id }) {
  const calls = useRef(new Set());
  useEffect(() => on("app", (event) => event.view === id && event.call && calls.current.add(event.call)), [id]);
  const items = useStore((data) =>
    pending(data.inbox).filter((item) => item.view === id || item.call === id || calls.current.has(item.call)),
  );
  const order = items.map((item) => item.id).join();
  return items.map((item) => html`<${InboxCard} key=${item.id} item=${item} order=${order} />`);
}

// --- Messages

/** Connect a frame with the API; returns a function that ends it. */
function talk(frame, view, { setHeight, setStopped }) {
  const origin = new URL(view.url).origin;
  const name = crypto.randomUUID();
  const goodbye = `teardown-${name}`;
  const held = [];
  let loaded = false;
  let initialized = false;
  let answered = null;
  const send = (message) => frame.contentWindow?.postMessage({ jsonrpc: "2.0", ...message }, origin);

  /** Tell the page that it is closed, and wait a moment for its answer: it may save something. */
  const leave = () =>
    initialized &&
    new Promise((resolve) => {
      answered = resolve;
      setTimeout(resolve, PATIENCE);
      send({ id: goodbye, method: "ui/resource-teardown", params: { reason: "The page is closed." } });
    });

  async function pass(message) {
    if (message.method === "ui/initialize") initialized = false;
    if (message.id === goodbye) return answered?.();
    try {
      const { reply, messages } = await post(`/apps/${view.view}/message`, { message, frame: name, context: hostContext(frame) });
      if (reply) send(reply);
      if (message.method === "ui/notifications/initialized") {
        initialized = true;
        for (const each of [...messages, ...held.splice(0)]) send(each);
      }
    } catch (error) {
      if (message.id != null && message.method) send({ id: message.id, error: { code: -32000, message: error.message } });
    }
  }

  function receive(event) {
    // Other frames, and the inner one, can send messages to this window too.
    if (event.source !== frame.contentWindow || event.origin !== origin) return;
    const message = event.data;
    if (!message || message.jsonrpc !== "2.0") return;
    if (message.method === SANDBOX + "proxy-ready" && !loaded) {
      loaded = true;
      send({ method: SANDBOX + "resource-ready", params: view.page });
    } else if (message.method === SANDBOX + "stopped") {
      setStopped(String(message.params?.reason));
    } else if (message.method === "ui/notifications/size-changed") {
      const wanted = Number(message.params?.height);
      if (wanted > 0) setHeight(Math.min(Math.max(Math.ceil(wanted), 40), TALLEST));
    } else if (message.id !== undefined || !String(message.method).startsWith(SANDBOX)) {
      pass(message);
    }
  }

  const off = on("app", (event) => {
    if (event.view !== view.view || (event.frame && event.frame !== name)) return;
    // Before it is initialized, a page is sent nothing but replies.
    if (event.message) initialized || !event.message.method ? send(event.message) : held.push(event.message);
  });
  const changed = () => initialized && send({ method: "ui/notifications/host-context-changed", params: hostContext(frame) });
  const themes = new MutationObserver(changed);
  themes.observe(document.documentElement, { attributes: true });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", changed);
  addEventListener("message", receive);
  frame.leave = leave;
  return () => {
    if (!answered) leave();
    removeEventListener("message", receive);
    dark.removeEventListener("change", changed);
    themes.disconnect();
    off();
  };
}

function hostContext(frame) {
  const style = getComputedStyle(document.documentElement);
  const scheme = style.colorScheme;
  const dark = scheme === "dark" || (scheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  const variables = { "--font-sans": style.getPropertyValue("--sans"), "--font-mono": style.getPropertyValue("--mono") };
  for (const [name, own] of COLORS) variables[`--color-${name}`] = style.getPropertyValue(`--${own}`);
  return {
    theme: dark ? "dark" : "light",
    styles: { variables },
    containerDimensions: { width: frame.clientWidth, maxHeight: TALLEST },
    locale: navigator.language,
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
  };
}
