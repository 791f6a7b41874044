/**
 * Requests to the console's API, and its events.
 *
 *   get, post, put, del       resolve to JSON, reject with ApiError; download saves the response as a file
 *   on(type, handler) → off   called with each event of that type; "*" for all, "connection" for {connected}
 *   segment(id)               an id as one segment of a path: get(`/items/tool/${segment(id)}`)
 *   WINDOW                    id of this window; events that result from its requests carry it as `window`
 *
 * Paths are relative to /api. The token never stands in an address: it is moved from the fragment to
 * sessionStorage (which ends with the tab) and sent as a header.
 */

export const WINDOW = crypto.randomUUID();
const KEY = "trunkline.token";
const handlers = new Map();

/** A request that failed: status 0 means that the console could not be reached. */
export class ApiError extends Error {
  constructor(status, { code = "failed", message = "The request failed", fix = null } = {}) {
    super(message);
    Object.assign(this, { status, code, fix });
  }
}

export const segment = encodeURIComponent;

export const token = () => sessionStorage.getItem(KEY);

/** Move the token from the fragment to the storage; exchange a one-time code for it. */
export async function logIn() {
  const [, kind, value] = /^#(token|code)=([^&]+)/.exec(location.hash) || [];
  if (!kind) return;
  history.replaceState(null, "", location.pathname + location.search);
  setToken(decodeURIComponent(value));
  if (kind === "code") setToken((await post("/login").catch(() => ({}))).token);
}

export function setToken(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

export const get = (path, query) => json("GET", path + queryString(query));
export const post = (path, body = {}) => json("POST", path, body);
export const put = (path, body = {}) => json("PUT", path, body);
export const del = (path) => json("DELETE", path);

export async function download(path, body) {
  const response = await send(body === undefined ? "GET" : "POST", path, body);
  const name = /filename\*=UTF-8''([^;]+)/.exec(response.headers.get("content-disposition") || "")?.[1];
  save(await response.blob(), name ? decodeURIComponent(name) : path.split("/").pop());
}

/** Save a blob or a text as a file. */
export function save(content, name) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content]));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000); // The browser reads it after the click.
}

export function on(type, handler) {
  if (!handlers.has(type)) handlers.set(type, new Set());
  handlers.get(type).add(handler);
  return () => handlers.get(type).delete(handler);
}

/** Call the handlers of an event; one that fails does not stop the others. */
export function emit(event) {
  for (const kind of [event.type, "*"]) {
    for (const handler of handlers.get(kind) || []) {
      try {
        handler(event);
      } catch (error) {
        console.error(error);
      }
    }
  }
}

/** Read events for as long as the page lives; reconnects by itself. */
export async function connect() {
  for (let delay = 400; ; delay = Math.min(delay * 1.6, 5000)) {
    try {
      const response = await send("GET", "/events");
      delay = 400;
      await readEvents(response.body.getReader());
    } catch (error) {
      if (error.status === 401) return; // `send` has said so; another token starts anew.
    }
    emit({ type: "connection", connected: false });
    await new Promise((resolve) => setTimeout(resolve, delay));
  }
}

async function readEvents(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + decoder.decode(value, { stream: true })).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      // Each event is one line of JSON; comments (":") keep the connection alive.
      if (!line.startsWith("data:")) continue;
      const event = JSON.parse(line.slice(5));
      if (event.type === "hello") emit({ type: "connection", connected: true });
      emit(event);
    }
  }
}

async function json(method, path, body) {
  const response = await send(method, path, body);
  return response.status === 204 ? null : response.json();
}

async function send(method, path, body) {
  const headers = { Authorization: `Bearer ${token()}`, "X-Console-Window": WINDOW };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch("/api" + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new ApiError(0, { code: "unreachable", message: "The console does not answer. Is the command still running?" });
  }
  if (response.ok) return response;
  if (response.status === 401) emit({ type: "unauthorized" });
  const { error } = await response.json().catch(() => ({}));
  throw new ApiError(response.status, error || { message: `The console answered with status ${response.status}` });
}

function queryString(query) {
  const given = Object.entries(query || {}).filter(([, value]) => value != null && value !== "");
  return given.length ? "?" + new URLSearchParams(given) : "";
}
