/** The traffic: every message of every server, answers below their requests, with filters, replay, recording and diff. */
import { del, download, get, on, post } from "../api.js";
import { Waterfall, latency } from "../charts.js";
import { Field, Select } from "../fields.js";
import { Data } from "../result.js";
import { link, navigate, useStore } from "../store.js";
import {
  attempt, Button, bytes, Card, Chips, clock, confirmDialog, Dialog, Diff, dotted, Empty, ErrorNote, html, KeyValue, plural, Search, Tag,
  useEffect, useLoad, useMemo, useRef, useState, VirtualList,
} from "../ui.js";

const MOST = 20_000; // Rows that the page keeps: as many as the console does.
const PAGE = 5_000; // Rows of one request while older ones are loaded.
const KINDS = [
  { id: "", label: "all" },
  { id: "call", label: "requests" },
  { id: "bad", label: "errors" },
  { id: "notification", label: "notifications" },
  { id: "http", label: "HTTP" },
];
const ARROWS = { out: "→", in: "←" };
const DIRECTIONS = { out: "sent", in: "received" };

const isBad = (row) => row.kind === "error" || row.kind === "unreadable" || row.status >= 400;
const toneOf = (row) => (isBad(row) ? "bar-bad" : row.ms > 1000 ? "bar-warn" : row.kind === "http" ? "bar-soft" : "bar-accent");
const rootOf = (row) => row.round ?? row.pair ?? row.seq;
const precise = (at) => `${clock(at)}.${String(Math.floor((at % 1) * 1000)).padStart(3, "0")}`;

/** The rows from the newest to the oldest page, then those of the events; while paused, new ones are held back. */
function useRows(paused) {
  const box = useRef({ rows: [], held: [] }).current;
  const [version, redraw] = useState(0);
  const isPaused = useRef();
  isPaused.current = paused;
  const changed = () => redraw((number) => number + 1);
  const release = () => {
    if (box.held.length) box.rows = box.rows.concat(box.held).slice(-MOST);
    box.held = [];
    changed();
  };
  const clear = () => {
    Object.assign(box, { rows: [], held: [] });
    changed();
  };
  useEffect(() => {
    let live = true;
    const load = async () => {
      clear();
      for (let before, first = -1; live && before !== first && box.rows.length < MOST;) {
        const page = await get("/traffic", { limit: PAGE, before });
        const rows = page.rows.filter((row) => !before || row.seq < before);
        if (!live || !rows.length) return;
        // Events may have brought some of them already.
        box.rows = [...new Map([...rows, ...box.rows].map((row) => [row.seq, row])).values()];
        box.held = box.held.filter((row) => row.seq > box.rows.at(-1).seq);
        [before, first] = [rows[0].seq, page.first];
        changed();
      }
    };
    attempt(load());
    const take = (rows) => {
      const last = (box.held.at(-1) || box.rows.at(-1))?.seq ?? 0;
      for (const row of rows) {
        const known = row.seq <= last && [box.held, box.rows].find((list) => (list[0]?.seq ?? Infinity) <= row.seq);
        if (known)
          known[known.findLastIndex((other) => other.seq <= row.seq)] = row; // It was answered meanwhile.
        else if (row.seq > last) box.held.push(row);
      }
      if (isPaused.current) changed();
      else release();
    };
    const offs = [
      on("missed", load),
      on("traffic", async ({ rows }) => {
        const last = (box.held.at(-1) || box.rows.at(-1))?.seq;
        // A burst is sent in part: what lies between is loaded.
        take(last && rows[0].seq > last + 1 ? (await get("/traffic", { after: last, limit: PAGE })).rows : rows);
      }),
    ];
    return () => {
      live = false;
      offs.forEach((off) => off());
    };
  }, []);
  useEffect(() => {
    if (!paused) release();
  }, [paused]);
  return { rows: box.rows, held: box.held.length, version, clear };
}

const hays = new WeakMap(); // What is searched of a row, in lower case: a key only compares.
function haystack(row) {
  if (!hays.has(row)) hays.set(row, `#${row.seq} ${row.server} ${row.method} ${row.summary} ${row.id} ${row.status}`.toLowerCase());
  return hays.get(row);
}

function matches(row, { server, kind, text }) {
  if (server && row.server !== server) return false;
  if (kind && !(kind === "bad" ? isBad(row) : kind === "call" ? ["request", "response", "error"].includes(row.kind) : row.kind === kind))
    return false;
  return !text || haystack(row).includes(text);
}

const CHECKS = ["ping", "server/discover"];

/** The rows without the regular checks of whether a server answers; the first and those that failed are kept. */
function withoutChecks(rows) {
  const started = new Set();
  const checks = new Set();
  return rows.filter((row) => {
    if (checks.has(rootOf(row))) return isBad(row);
    if (row.kind !== "request" || !CHECKS.includes(row.method)) return true;
    const isFirst = !started.has(row.server);
    started.add(row.server);
    if (!isFirst) checks.add(row.seq);
    return isFirst;
  });
}

/** The rows with each answer and each further round below the first request. */
function grouped(rows) {
  const groups = new Map();
  for (const row of rows) {
    const members = groups.get(rootOf(row));
    if (members) members.push({ row, nested: true });
    else groups.set(rootOf(row), [{ row }]);
  }
  return [...groups.values()].flat();
}

/** One row. The bar is logarithmic: 1 ms at the left end, 10 s at the right one. */
function Row({ row, nested, current, compared }) {
  return html`<a class="message-row ${nested ? "answer" : ""} ${compared ? "compared" : ""}" data-row=${row.seq}
    href=${link("traffic", row.seq)} aria-current=${current ? "true" : null}>
    <time>${precise(row.at)}</time>
    <span class="arrow ${row.direction}" title=${DIRECTIONS[row.direction]}>${ARROWS[row.direction]}</span>
    <span class="cut">${row.server}</span><b class="cut">${row.method || row.kind}</b>
    <span class="cut soft">${row.summary}</span>
    <span class="cut status ${isBad(row) ? "bad" : ""}">
      ${row.status ?? (isBad(row) ? row.kind : row.kind === "response" ? "ok" : "")}
    </span>
    <span class="latency">
      ${row.ms != null && html`
          <i class=${toneOf(row)} style=${{ width: `${Math.min(1, Math.max(0.03, Math.log10(1 + row.ms) / 4)) * 100}%` }} />
          ${latency(row.ms)}`}
    </span>
  </a>`;
}

function Timeline({ rows }) {
  const first = Math.min(...rows.map((row) => row.at));
  const bars = rows.map((row) => {
    const end = (row.at - first) * 1000;
    return {
      name: `${ARROWS[row.direction]} ${row.method || row.kind}`,
      start: Math.max(0, row.pair ? end - row.ms : end),
      ms: row.ms || 0,
      tone: toneOf(row),
      text: row.ms == null ? (end ? `+${latency(end)}` : "") : latency(row.ms),
    };
  });
  return html`<${Card} title="Timeline"><${Waterfall} bars=${bars} /><//>`;
}

const Headers = ({ title, headers }) =>
  Object.keys(headers || {}).length > 0 &&
  html`
    <h3 class="faint">${title}</h3>
    <${KeyValue} items=${Object.entries(headers).map(([name, value]) => [name, html`<code>${value}</code>`])} />`;

function Message({ seq, rows, version, onCompare }) {
  const { value: found, error } = useLoad(() => get(`/traffic/${seq}`), [seq]);
  const family = useMemo(() => (found ? rows.filter((row) => rootOf(row) === rootOf(found)) : []), [found, version]);
  if (!found) return html`<${ErrorNote} error=${error} />`;
  const { http } = found;
  const replay = async () => {
    const answer = await attempt(post(`/traffic/${seq}/replay`));
    if (answer) navigate(answer.call ? link("calls", answer.call.id) : "/traffic");
  };
  return html`
    <header class="head">
      <div class="row">
        <h1 class="grow">${found.method || found.kind}</h1>
        ${isBad(found) && html`<${Tag} tone="bad">error<//>`}
        <a class="button quiet" href="/traffic" aria-label="Close">×</a>
      </div>
      <p class="faint">
        ${dotted(`#${seq}`, found.server, DIRECTIONS[found.direction], precise(found.at), bytes(found.bytes), latency(found.ms))}
      </p>
    </header>
    <div class="row">
      ${
        found.kind === "request" &&
        found.direction === "out" &&
        html`<${Button} kind="primary" icon="again" action="replay" onClick=${replay}>
          Replay
        <//>`}
      <${Button} action="diff" onClick=${() => onCompare(found)}>Compare with…<//>
      ${family
        .filter((row) => row.seq !== seq && row.kind !== "http")
        .slice(0, 4)
        .map((row) => html`<a class="button quiet" href=${link("traffic", row.seq)}>${ARROWS[row.direction]} #${row.seq}</a>`)}
    </div>
    ${family.length > 1 && html`<${Timeline} rows=${family} />`}
    ${
      found.summary &&
      (found.message == null || found.kind === "error") &&
      html`<p class="note ${isBad(found) ? "bad" : ""}">
        ${found.summary}
      </p>`}
    ${found.message != null && html`<${Card} title="Message"><${Data} tree value=${found.message} /><//>`}
    ${http && html`<${Card} title="HTTP"
        actions=${http.status && html`<${Tag} tone=${http.status >= 400 ? "bad" : "ok"}>${http.status}<//>`}>
        <p class="break"><code>${http.method} ${http.url}</code></p>
        <${Headers} title="Request" headers=${http.request_headers} />
        <${Headers} title="Response" headers=${http.response_headers} />
      <//>`
    }`;
}

function Comparison({ left, right, onClose }) {
  const { value, error } = useLoad(() => post("/traffic/diff", { left, right }), [`${left} ${right}`]);
  const marks = { same: "  ", left: "- ", right: "+ " };
  const changed = value?.lines.some((line) => line.kind !== "same");
  return html`
    <header class="head">
      <div class="row">
        <h1 class="grow">#${left} and #${right}</h1>
        <${Button} kind="quiet" icon="close" aria-label="Close" onClick=${onClose} />
      </div>
    </header>
    <${ErrorNote} error=${error} />
    ${value && !changed && html`<p class="note">The two messages are the same.</p>`}
    ${changed && html`<${Diff} lines=${value.lines.map((line) => marks[line.kind] + line.text)} />`}`;
}

function RecordDialog({ names, chosen, onClose }) {
  const [server, setServer] = useState(chosen || names[0]);
  const save = () => attempt(download("/traffic/recording", { server }).then(onClose));
  return html`<${Dialog} title="Save a recording" onClose=${onClose}
    actions=${html`<${Button} kind="primary" action="save" onClick=${save}>Save<//>`}>
    <p class="soft">The messages of one server in a file, with secrets masked, in the format of <code>trunkline record</code>.</p>
    <${Field} label="Server"><${Select} value=${server} options=${names} onChange=${setServer} /><//>
  <//>`;
}

export default function Traffic({ path }) {
  const [filter, setFilter] = useState({ server: "", kind: "", text: "", checks: false });
  const [paused, setPaused] = useState(false);
  const [left, setLeft] = useState(null);
  const [saving, setSaving] = useState(false);
  const names = useStore((data) => data.servers.map((server) => server.name));
  const { rows, held, version, clear } = useRows(paused);
  const seq = Number(path[0]) || null;
  const items = useMemo(() => {
    const wanted = { ...filter, text: filter.text.trim().toLowerCase() };
    return grouped((filter.checks ? rows : withoutChecks(rows)).filter((row) => matches(row, wanted)));
  }, [version, filter]);
  const set = (name) => (value) => setFilter({ ...filter, [name]: value });
  const clearAll = async () => {
    if (
      !(await confirmDialog({
        title: "Clear the traffic?",
        text: "All rows are removed, on every open page. The audit trail stays.",
        action: "Clear",
        danger: true,
      }))
    )
      return;
    await attempt(del("/traffic").then(clear));
    navigate("/traffic");
  };
  return html`<div class="split traffic ${seq ? "open" : ""}">
    <section class="list" aria-label="Traffic">
      <div class="list-head">
        <div class="row">
          <h1>
            Traffic <span class="count">
              ${items.length < rows.length ? `${items.length.toLocaleString("en")} of ` : ""}
              ${plural(rows.length, "message")}
            </span>
          </h1>
          <span class="grow" />
          <${Button} icon=${paused ? "play" : "stop"} action=${paused ? "follow" : "pause"}
            onClick=${() => setPaused(!paused)}>
            ${paused ? `Follow${held ? ` (${held} new)` : ""}` : "Pause"}
          <//>
          <${Button} icon="download" action="record" onClick=${() => setSaving(true)}>Recording…<//>
          <${Button} action="clear" onClick=${clearAll}>Clear<//>
        </div>
        <div class="row">
          <${Search} label="Filter messages" placeholder="Method, text, id" value=${filter.text} onInput=${set("text")} />
          <${Select} label="Server" value=${filter.server} options=${[["", "All servers"], ...names]} onChange=${set("server")} />
          <${Chips} label="Kind" tabs=${KINDS} value=${filter.kind} onChange=${set("kind")} />
          <button type="button" class="chip" data-action="checks" aria-pressed=${filter.checks}
            title="The regular requests that only find out whether a server answers"
            onClick=${() => set("checks")(!filter.checks)}>
            health checks
          </button>
        </div>
        ${left && html`<p class="note">
            Comparing #
            ${left.seq} ${left.method} with ${seq && seq !== left.seq ? `#${seq}` : "…: choose the second message"} <button type="button"
              class="plain-button" onClick=${() => setLeft(null)}>
              Stop
            </button>
          </p>`}
      </div>
      ${
        items.length
          ? html`<${VirtualList} class="messages" rows=${items} height=${28} follow=${!paused} label="Messages"
            selected=${seq ? items.findIndex((item) => item.row.seq === seq) : -1} keyOf=${(item) => item.row.seq}
            render=${(item) => html`<${Row} ...${item} current=${item.row.seq === seq} compared=${left?.seq === item.row.seq} />`} />`
          : html`<${Empty} icon="traffic" title=${rows.length ? "Nothing matches" : "No messages yet"}>
            ${rows.length ? "Change the filter." : "They appear here as soon as a server is used."}
          <//>`}
    </section>
    ${seq && html`<div class="detail">
        <a class="back" href="/traffic">Traffic</a>
        ${
          left && left.seq !== seq
            ? html`<${Comparison} left=${left.seq} right=${seq} onClose=${() => setLeft(null)} />`
            : html`<${Message} seq=${seq} rows=${rows} version=${version} onCompare=${setLeft} />`}
      </div>`}
    ${saving && html`<${RecordDialog} names=${names} chosen=${filter.server} onClose=${() => setSaving(false)} />`}
  </div>`;
}
