/**
 * What the views of tools, resources, prompts and skills share:
 *   CatalogView {kind, id, rows, text, filters, row, tags, detail}   a list by server, and the item of the path
 *   Runner, InboxCard   as in views/calls.js and views/inbox.js; loaded when the first item is opened
 * `row(row)` renders a row of the list, `detail {item}` what is below the head of an item.
 */
import { get, segment } from "./api.js";
import { haystack, link, useStore } from "./store.js";
import {
  ago, Card, Chips, count, Diff, Dot, Empty, html, Icon, lazy, plural, Search, Spinner, Split, useEffect, useLoad, useMemo, useState,
  VirtualList,
} from "./ui.js";

export const Runner = lazy(() => import("./views/calls.js"), "Runner");
export const InboxCard = lazy(() => import("./views/inbox.js"), "InboxCard");

export function CatalogView({ kind, id, rows, text, itemKind = kind, ...rest }) {
  const [view, title] = [`${kind}s`, `${kind[0].toUpperCase()}${kind.slice(1)}s`];
  const [servers, hidden] = useStore((data) => [data.servers, data.catalog?.hidden]);
  if (!id && rows?.length === 0 && !hidden?.some((row) => row.kind === kind)) {
    return html`<div class="page">
      <h1>${title}</h1>
      <${Empty} icon=${view} title=${`No ${view}`}>
        ${
          servers.length
            ? html`None of your servers offers ${view} now. Their state is under <a href="/servers">Servers</a>.`
            : html`There is no server yet. <a href="/servers?add">Add a server</a>`}
      <//>
    </div>`;
  }
  return html`<${Split} label=${title} open=${!!id} back=${`/${view}`}
    list=${html`<${CatalogList} kind=${kind} view=${view} title=${title} rows=${rows} selected=${id} ...${rest} />`}>
    ${
      id
        ? html`<${Item} key=${id} kind=${itemKind} id=${id} ...${rest} />`
        : html`<${Empty} icon=${view} title=${rows ? plural(rows.length, kind) : ""}>
          ${text}
        <//>`}
  <//>`;
}

function CatalogList({ kind, view, title, rows, selected, filters = [], row: render }) {
  const [servers, hidden] = useStore((data) => [data.servers, data.catalog?.hidden]);
  const [filter, setFilter] = useState("all");
  const [text, setText] = useState("");
  const lines = useMemo(() => {
    const test = filters.find((entry) => entry.id === filter)?.test;
    const words = text.toLowerCase().split(/\s+/);
    const groups = new Map();
    for (const row of rows || []) {
      if ((test && !test(row)) || !words.every((word) => haystack(row).includes(word))) continue;
      if (!groups.has(row.server)) groups.set(row.server, []);
      groups.get(row.server).push(row);
    }
    const found = [...groups].flatMap(([header, own]) => [
      { header, size: own.length, tokens: own.reduce((sum, row) => sum + (row.tokens || 0), 0) },
      ...own,
    ]);
    const kept = test || text ? [] : (hidden || []).filter((row) => row.kind === kind);
    return kept.length ? [...found, { header: "Not usable", size: kept.length }, ...kept] : found;
  }, [rows, filter, text, hidden]);
  const selectedAt = useMemo(() => lines.findIndex((row) => row.id === selected), [lines, selected]);
  const line = (row) =>
    row.header
      ? html`<div class="group">
        <${Dot} state=${servers.find((server) => server.name === row.header)?.state} /><b>${row.header}</b>
        ${row.size}${row.tokens ? ` · ${count(row.tokens)} tokens` : ""}
      </div>`
      : row.reason
        ? html`<div class="item" title=${row.reason}><div class="item-head"><b>${row.server}/${row.name}</b></div><p>${row.reason}</p></div>`
        : html`<a class="item" data-item=${row.id} href=${link(view, row.id)}
          aria-current=${row.id === selected ? "page" : null}>
          ${render(row)}
        </a>`;
  return html`
    <div class="list-head">
      <h1>${title}<span class="count">${rows?.length || ""}</span></h1>
      ${rows?.length > 12 && html`<${Search} label=${`Filter ${view}`} value=${text} onInput=${setText} />`}
      ${filters.length > 0 && html`<${Chips} label="Filter" value=${filter} onChange=${setFilter} tabs=${[{ id: "all", label: "all" }, ...filters]} />`}
    </div>
    ${
      lines.length
        ? html`<${VirtualList} rows=${lines} label=${title} selected=${selectedAt} height=${rowHeight} skip=${isFixed}
          keyOf=${rowKey} render=${line} />`
        : html`<p class="faint pad">
          ${!rows ? html`<${Spinner} label="Loading" />` : rows.length ? "Nothing matches." : `No server offers ${view}.`}
        </p>`
    }`;
}

const isFixed = (row) => row.header || row.reason;
const rowHeight = (row) => (row.header ? 36 : 56);
const rowKey = (row) => row.id || `# ${row.header || row.server + row.name}`;

/** The head of an item, its warnings, and what its view shows of it. */
function Item({ kind, id, tags, detail: Detail }) {
  const counter = useStore((data) => data.catalog?.counter);
  const { value: item, error, again } = useLoad(() => get(`/items/${kind}/${segment(id)}`), [id]);
  useEffect(() => void (item && again()), [counter]);
  if (!item)
    return error
      ? html`<${Empty} icon="warn" title=${`This ${kind} cannot be shown`}>${error.message}<//>`
      : html`<${Spinner} label="Loading" />`;
  const { title, server, name, definition, findings = [], changes = [], pin } = item;
  return html`
    <div class="head">
      <h1><span>${server} / </span>${name}</h1>${title && title !== name && html`<p><b>${title}</b></p>`}
      <p class="soft description">${definition?.description || item.description}</p>
      ${tags && html`<div class="row">${tags(item)}</div>`}
    </div>
    ${changes.length > 0 && html`<${Card} tone="ask" title=${`The definition changed${pin?.since ? ` (accepted ${ago(pin.since)})` : ""}`}>
        <${Diff} lines=${changes} />
        <p class="faint">It waits for your review in the <a href="/inbox">inbox</a>.</p>
      <//>`}
    ${findings.map((text) => html`<div class="note warn" key=${text}><${Icon} name="warn" /><div>${text}</div></div>`)}
    <${Detail} item=${item} />`;
}
