/**
 * What the page knows, and where it is.
 *
 *   useStore(selector)   renders again only if the selected value changed (=== or a shallow equal array/object)
 *   data                 {connected, token, state, catalog, index, servers, inbox, calls, saved, updated}
 *     state    GET /api/state          catalog  GET /api/catalog (null until loaded)
 *     servers  [ServerView]            inbox    [InboxItem], open ones and those closed lately (`closed: {outcome, text, window, at}`)
 *     blocked  [InboxItem] of changed definitions that the user blocked
 *     calls    [CallView], newest first (without results)   saved  [SavedCall]
 *     updated  Set of ids of resources that changed since they were read
 *     index    [{kind, id, server, name, text, hay}] for the search
 *   update(members)      replaces members of `data`
 *   start()              loads everything and follows the events
 *   navigate(path, {replace}?)   useRoute() → {view, path: [id], query: {..}}
 *   link(view, ...segments) → an encoded path;  plain <a href="/..."> work without a handler
 *   pending(inbox) → the open items    headline(item) → [text, name]
 *   runCall({kind, id, arguments}) → CallView     useCall(id) → CallView with its result once it has ended
 */
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "../vendor/preact-htm.module.js";
import { connect, del, get, logIn, on, post, segment, token } from "./api.js";

export const data = {
  connected: null, // null: not yet; false: lost
  token: undefined, // null: there is none.
  refused: false, // The token that was given is wrong.
  state: null,
  catalog: null,
  index: [],
  servers: [],
  inbox: [],
  blocked: [],
  calls: [],
  saved: [],
  updated: new Set(),
};
const watchers = new Set();
const CALLS = 200; // As many as a person scrolls back; older ones are in the audit view.
const CLOSED = 20; // Answered items stay that long in the inbox, so that one sees what became of them.

export function update(members) {
  Object.assign(data, members);
  for (const watcher of [...watchers]) watcher();
}

export function useStore(selector) {
  const [, again] = useReducer((n) => n + 1, 0);
  const seen = useRef();
  const value = selector(data);
  seen.current = { selector, value };
  useLayoutEffect(() => {
    const check = () => same(seen.current.selector(data), seen.current.value) || again();
    watchers.add(check);
    check(); // What changed between the rendering and this effect.
    return () => watchers.delete(check);
  }, []);
  return value;
}

function same(a, b) {
  if (Object.is(a, b)) return true;
  if (!a || !b || typeof a !== "object" || typeof b !== "object" || Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.is(a[key], b[key]));
}

// --- Loading and events

export async function start() {
  await logIn();
  update({ token: token() });
  if (!data.token) return;
  connect();
}

const loads = new Set(); // The events since each request for the state: they may be newer than its response.

async function loadState() {
  const events = [];
  loads.add(events);
  const state = await get("/state").finally(() => loads.delete(events));
  const { inbox = [] } = state;
  update({
    state,
    servers: state.servers || [],
    inbox: [...inbox, ...data.inbox.filter((item) => item.closed && !inbox.some((open) => open.id === item.id))],
    blocked: state.blocked || [],
    calls: state.calls || [],
    saved: state.saved || [],
  });
  for (const event of events) CHANGES[event.type](event);
}

let loading = null;
let stale = false;

/** Load the catalog; changes while it loads lead to one more load, not to one each. */
export async function loadCatalog() {
  stale = true;
  if (loading) return loading;
  loading = (async () => {
    while (stale) {
      stale = false;
      const catalog = await get("/catalog");
      update({ catalog, index: searchIndex(catalog) });
    }
  })();
  try {
    await loading;
  } catch (error) {
    console.error(error); // The next `catalog` event, or the reconnect, tries again.
  } finally {
    loading = null;
  }
}

async function loadAll() {
  await Promise.allSettled([loadState(), loadCatalog()]);
  update({ connected: true });
}

on("connection", ({ connected }) => {
  if (connected) loadAll();
  else update({ connected: false });
});
on("missed", loadAll);
on("unauthorized", () => update({ token: null, refused: true }));
on("catalog", (event) => {
  if (event.counter != null && event.counter === data.catalog?.counter) return;
  if (event.counts && data.state) update({ state: { ...data.state, counts: event.counts } });
  loadCatalog();
});
on("reloaded", () => loadAll());
/** Events that change what `loadState` loads. */
const CHANGES = {
  server: ({ server }) => update({ servers: upsert(data.servers, server, "name").sort((a, b) => a.name.localeCompare(b.name)) }),
  server_removed: ({ name }) => update({ servers: data.servers.filter((server) => server.name !== name) }),
  call: ({ call }) => putCall(call),
  inbox: ({ item }) => update({ inbox: upsert(data.inbox, { ...item, seen: performance.now() }, "id") }),
  inbox_closed: ({ id, outcome, text, window }) => {
    const item = data.inbox.find((item) => item.id === id);
    if (!item) return;
    const closed = { ...item, closed: { outcome, text, window, at: Date.now() / 1000 } };
    const others = data.inbox.filter((item) => item.id !== id);
    const ended = [closed, ...others.filter((item) => item.closed)].slice(0, CLOSED);
    update({ inbox: [...others.filter((item) => !item.closed), ...ended] });
  },
  blocked: ({ blocked }) => update({ blocked }),
  load_problem: ({ problem }) => update({ state: { ...data.state, load_problem: problem } }),
};
for (const [type, change] of Object.entries(CHANGES))
  on(type, (event) => {
    for (const events of loads) events.push(event);
    change(event);
  });
on("resource_updated", ({ id }) => update({ updated: new Set(data.updated).add(id) }));

function upsert(list, item, key) {
  const at = list.findIndex((other) => other[key] === item[key]);
  return at < 0 ? [...list, item] : list.with(at, item);
}

export const pending = (inbox) => inbox.filter((item) => !item.closed);

const CALLERS = { chat: "The model", app: "An app", gateway: "A client of the gateway" };

/** What an item of the inbox wants, in one line: [text, name]. */
export function headline(item) {
  const { kind, server, name } = item;
  const verb = { tool: "call", resource: "read" }[item.act] || "use";
  if (kind === "approval" && item.caller === "you") return ["Waiting for your approval:", item.item || name];
  if (kind === "approval") return [`${CALLERS[item.caller] || server} wants to ${verb}`, item.item || name];
  if (kind === "sampling_request") return [`${server} asks for an answer from`, item.model || "a model"];
  if (kind === "sampling_response") return ["Review the answer of the model for", server];
  if (kind === "pin") return ["The definition changed:", `${server}/${name}`];
  return [{ form: "A question from", url: "A page to open, from" }[kind] || item.title, server];
}

/** Lower-case texts are made once here: a keystroke only compares. */
function searchIndex(catalog) {
  const rows = [];
  for (const kind of ["tool", "resource", "template", "prompt", "skill"]) {
    for (const row of catalog[kind + "s"] || []) {
      const name = row.name || row.uri || row.uri_template;
      const text = row.title || row.description || "";
      rows.push({ kind, id: row.id, server: row.server, name, text, key: name.toLowerCase(), hay: haystack(row) });
    }
  }
  return rows;
}

const hays = new WeakMap();

/** All that can be searched of a row of the catalog, in lower case. */
export function haystack(row) {
  if (!hays.has(row)) {
    const parts = [row.id, row.title, row.description, row.uri_template];
    hays.set(row, parts.filter(Boolean).join("\n").toLowerCase());
  }
  return hays.get(row);
}

// --- Calls

const results = new Map(); // By call id. A few, as results may be large.
const RESULTS = 12;

function putCall(call) {
  const known = data.calls.find((other) => other.id === call.id);
  // The response to a request can arrive after the event that says how the call ended.
  if (known && known.state !== "running" && call.state === "running") return;
  update({ calls: known ? data.calls.map((other) => (other === known ? call : other)) : [call, ...data.calls].slice(0, CALLS) });
}

export async function runCall(request, path = "/calls") {
  const { call } = await post(path, request);
  putCall(call);
  return call;
}

export const cancelCall = (id) => post(`/calls/${segment(id)}/cancel`);
export const loadSaved = async () => update({ saved: (await get("/saved")).saved || [] });
export async function removeSaved(id) {
  await del(`/saved/${segment(id)}`);
  await loadSaved();
}

export function useCall(id) {
  const call = useStore((data) => data.calls.find((call) => call.id === id));
  const [found, setFound] = useState(null);
  const ended = !!id && call?.state !== "running";
  useEffect(() => {
    if (!ended) return;
    let live = true;
    const known = results.get(id);
    if (known) setFound(known);
    else {
      get(`/calls/${segment(id)}`).then(
        (answer) => {
          const whole = answer.call || answer;
          results.set(id, whole);
          if (results.size > RESULTS) results.delete(results.keys().next().value);
          if (live) setFound(whole);
        },
        (error) => live && setFound({ ...call, id, state: "failed", error }),
      );
    }
    return () => (live = false);
  }, [id, ended]);
  if (!id) return null;
  return found?.id === id ? found : call || null;
}

// --- Where the page is

const located = new Set();

export function route() {
  // All after the view is one id, with or without encoded slashes: people write /tools/time/convert_time.
  const [, view, id] = /^\/*([^/]*)\/*(.*?)\/*$/.exec(location.pathname);
  return { view: decode(view), path: id ? [decode(id)] : [], query: Object.fromEntries(new URLSearchParams(location.search)) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const link = (...segments) =>
  "/" +
  segments
    .filter((part) => part != null)
    .map(segment)
    .join("/");

export function navigate(path, { replace = false } = {}) {
  if (path === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  moved();
}

function moved() {
  for (const handler of [...located]) handler();
}

addEventListener("popstate", moved);
addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href]");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  if (anchor.target || anchor.origin !== location.origin || anchor.download || anchor.pathname.startsWith("/static/")) return;
  event.preventDefault();
  navigate(anchor.pathname + anchor.search);
});

export function useRoute() {
  const [found, setFound] = useState(route);
  useLayoutEffect(() => {
    const handler = () => setFound(route());
    located.add(handler);
    return () => located.delete(handler);
  }, []);
  return found;
}
