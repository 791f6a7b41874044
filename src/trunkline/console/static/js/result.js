/**
 * What a call returned.
 *   Result {call}             content, structured output as table and tree, JSON
 *   Blocks {blocks, server}   content blocks of the protocol
 *   Data {value, tree?}       JSON as a table or as a tree
 * Results are untrusted: media only as data: URLs of image and audio types, everything else as text.
 */
import { download, save, segment } from "./api.js";
import { looksLikeMarkdown, Markdown } from "./markdown.js";
import { runCall, useCall } from "./store.js";
import { attempt, base64Size, Button, bytes, Code, ErrorNote, html, Icon, Spinner, Tabs, Tag, useState } from "./ui.js";

const TEXT = 20_000; // Characters of a text shown at first; the layout of more is slow.
const ROWS = 100; // Rows of a table and members of a tree shown at first.
const MEDIA = /^(image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)|audio\/[\w.+-]+)$/;
const DROPPED = "The result was dropped to save memory. Run the call again.";
const isObject = (value) => !!value && typeof value === "object" && !Array.isArray(value);

export function Result({ call }) {
  const { result, truncated, validation } = call;
  const [chosen, setChosen] = useState(null);
  if (!result)
    return html`<${ErrorNote} error=${call.error || { message: call.state === "done" ? DROPPED : `The call was ${call.state}.` }} />`;
  const data = result.structuredContent;
  const blocks = skill(result) || result.content || result.contents?.map((resource) => ({ type: "resource", resource })) || [];
  const tabs = {
    ...(data != null && { table: "Table", tree: "Tree" }),
    ...(result.messages && { messages: "Messages" }),
    ...((blocks.length || data === undefined) && !result.messages && { content: "Content" }),
    raw: "JSON",
  };
  // Pictures and links come first, and so does a text that is the only member of the structured output. Otherwise text
  // beside structured output is mostly the same once more.
  const only = isObject(data) && Object.keys(data).length === 1 ? Object.values(data)[0] : data;
  const first =
    tabs.content && ((only !== data && typeof only === "string") || blocks.some((block) => !["text", "resource"].includes(block.type)))
      ? "content"
      : Object.keys(tabs)[0];
  const tab = tabs[chosen] ? chosen : first;
  return html`<div class="stack" data-result=${call.id}>
    <div class="row">
      <${Tabs} small label="Result as" tabs=${Object.entries(tabs).map(([id, label]) => ({ id, label }))} value=${tab}
        onChange=${setChosen} />
      ${validation && html`<${Tag} tone=${validation.ok ? "ok" : "bad"}>
          ${validation.ok ? "matches its schema" : "does not match its schema"}
        <//>`}
      <span class="grow"></span>
      <${Button} kind="quiet" icon="download" action="download" aria-label="Download" title="Download the whole result"
        onClick=${() => attempt(download(`/calls/${segment(call.id)}/result`))} />
    </div>
    <${ErrorNote} error=${validation?.problem && { message: validation.problem }} />
    ${truncated && html`<p class="note warn">
        <${Icon} name="warn" />
        Cut: ${bytes(truncated.shown)} of ${bytes(truncated.bytes)} are shown. Download the result to see all of it.
      </p>`}
    ${
      tab === "table"
        ? html`<${Table} value=${only && typeof only === "object" ? only : data} />`
        : tab === "tree"
          ? html`<${Data} tree value=${data} />`
          : tab === "raw"
            ? html`<${Text} plain text=${JSON.stringify(result, null, 2)} />`
            : tab === "content"
              ? blocks.length
                ? html`<${Blocks} blocks=${blocks} server=${call.server} error=${call.is_error} />`
                : html`<p class="faint">The result is empty.</p>`
              : result.messages.map(
                  (message, i) =>
                    html`<div class="message" key=${i}>
                      <${Tag} tone=${message.role === "user" ? "accent" : ""}>${message.role}<//>
                      <${Blocks} blocks=${[].concat(message.content)} server=${call.server} />
                    </div>`,
                )
    }
  </div>`;
}

/** A skill as blocks: its text, and links to its files. */
const skill = ({ text, frontmatter, files = [] }) =>
  frontmatter && [
    { type: "data", value: frontmatter },
    { type: "resource", resource: { text, mimeType: "text/markdown", uri: "Instructions" } },
    ...files.map((file) => ({ type: "resource_link", uri: file.uri || file, name: file.path || file.name })),
  ];

export const Blocks = ({ blocks, server, error }) =>
  html`<div class="stack blocks ${error ? "failed" : ""}">
    ${blocks.map((block, i) => html`<${Block} key=${i} block=${block} server=${server} />`)}
  </div>`;

function Block({ block, server }) {
  const { type, resource } = block;
  if (type === "text") return html`<${Text} text=${String(block.text)} />`;
  if (type === "image" || type === "audio") return html`<${Media} data=${block.data} type=${block.mimeType} />`;
  if (type === "resource_link") return html`<${ResourceLink} block=${block} server=${server} />`;
  if (!resource) return html`<${Data} tree=${type !== "data"} value=${type === "data" ? block.value : block} />`;
  return html`<figure>
    <figcaption>
      <${Icon} name="resources" /><span class="mono cut">${resource.uri}</span>
      <span class="faint">${resource.mimeType}</span>
    </figcaption>
    ${
      resource.blob === undefined
        ? html`<${Text} text=${String(resource.text)} type=${resource.mimeType} />`
        : html`<${Media} data=${resource.blob} type=${resource.mimeType} name=${resource.uri} />`}
  </figure>`;
}

function Media({ data = "", type = "", name = "" }) {
  const source = `data:${type};base64,${data}`;
  if (type.startsWith("audio/") && MEDIA.test(type)) return html`<audio controls src=${source} />`;
  if (MEDIA.test(type)) return html`<img class="media" alt=${`Picture returned by the server (${type})`} src=${source} />`;
  const keep = () =>
    save(new Blob([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))]), name.split(/[/?#]/).filter(Boolean).pop() || "data");
  return html`<div class="row">
    <span class="faint">${type || "Binary data"}, ${bytes(base64Size(data))}</span>
    <${Button} class="small" icon="download" onClick=${keep}>Download<//>
  </div>`;
}

/** A click reads the resource, in place. */
function ResourceLink({ block, server }) {
  const [id, setId] = useState(null);
  const call = useCall(id);
  const read = async () => setId((await attempt(runCall({ kind: "resource", id: `${server}/${block.uri}` })))?.id);
  return html`<div class="stack">
    <button type="button" class="reslink" data-action="read" onClick=${read}>
      <${Icon} name="link" /><b>${block.title || block.name || block.uri}</b>
      <span class="mono faint cut grow">${block.uri}</span><span class="faint">${block.mimeType}</span>
    </button>
    ${call && html`<div class="nested">
        ${
          call.state === "running" || !(call.result || call.error)
            ? html`<${Spinner} label="Reading" />`
            : html`<${Result} call=${call} />`}
      </div>`}
  </div>`;
}

function Text({ text, type = "", plain }) {
  const [nice, setNice] = useState(true);
  const [shown, setShown] = useState(TEXT);
  const data = !plain && /^\s*[[{]/.test(text) && text.length < 500_000 ? parsed(text) : undefined;
  const rich =
    data !== undefined
      ? "Tree"
      : !plain && (/markdown/.test(type) || (/^(text\/plain.*)?$/.test(type) && looksLikeMarkdown(text)))
        ? "Rendered"
        : null;
  const more = text.length > shown && !(nice && data !== undefined);
  return html`<div class="stack text">
    ${rich && html`<${Tabs} small label="Text as" tabs=${[
            { id: true, label: rich },
            { id: false, label: "Plain" },
          ]} value=${nice} onChange=${setNice} />`}
    ${
      !rich || !nice
        ? html`<${Code} wrap text=${text.slice(0, shown)} label="Text" />`
        : data !== undefined
          ? html`<${Data} tree value=${data} />`
          : html`<${Markdown} text=${text.slice(0, shown)} />`}
    ${more && html`<${More} rest=${bytes(text.length - shown)} onClick=${() => setShown(shown * 10)} />`}
  </div>`;
}

const More = ({ rest, onClick }) => html`<${Button} class="small" action="more" onClick=${onClick}>Show more (${rest})<//>`;

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export const Data = ({ value, tree }) =>
  tree ? html`<div class="tree mono"><${Tree} value=${value} open /></div>` : html`<${Table} value=${value} />`;

/** Lists of objects with a column for each member; an object with a row for each. */
function Table({ value, depth = 0 }) {
  const [shown, setShown] = useState(ROWS);
  if (!value || typeof value !== "object") return html`<${Cell} value=${value} />`;
  const wide = Array.isArray(value) && value.length > 0 && value.every(isObject);
  const rows = wide ? value : Object.entries(value);
  const columns = wide ? [...new Set(value.slice(0, 200).flatMap(Object.keys))].slice(0, 14) : [];
  const cell = (item, key) => html`<td key=${key}><${Cell} value=${item} depth=${depth} /></td>`;
  return html`<div class="scroll-x">
    <table>
      ${wide && html`<thead><tr>${columns.map((name) => html`<th key=${name}>${name}</th>`)}</tr></thead>`}
      <tbody>
        ${rows.slice(0, shown).map(
          (row, i) => html`<tr key=${i}>
            ${wide ? columns.map((name) => cell(row[name], name)) : html`<th scope="row">${row[0]}</th>${cell(row[1], "value")}`}
          </tr>`,
        )}
      </tbody>
    </table>
    ${rows.length > shown && html`<${More} rest=${rows.length - shown} onClick=${() => setShown(shown * 5)} />`}
  </div>`;
}

function Cell({ value, depth = 0 }) {
  if (!value || typeof value !== "object")
    return html`<span class=${typeof value === "string" ? "" : "mono"}>${value === undefined ? "" : String(value).slice(0, 2000)}</span>`;
  if (Array.isArray(value) && !value.some((item) => item && typeof item === "object")) return value.slice(0, ROWS).join(", ");
  return depth < 2 ? html`<${Table} value=${value} depth=${depth + 1} />` : html`<${Data} tree value=${value} />`;
}

function Tree({ name, value, open: first }) {
  const [open, setOpen] = useState(!!first);
  const [shown, setShown] = useState(ROWS);
  const label = name != null && html`<span class="key">${name}</span>: `;
  if (!value || typeof value !== "object")
    return html`<div class="leaf">
      ${label}
      <span class=${`v-${typeof value}`}>${typeof value === "string" ? JSON.stringify(value.slice(0, 2000)) : String(value)}</span>
    </div>`;
  const entries = Object.entries(value);
  return html`<details open=${open} onToggle=${(event) => (event.stopPropagation(), setOpen(event.currentTarget.open))}>
    <summary>${label}<span class="faint">${Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`}</span></summary>
    ${
      open &&
      entries.slice(0, shown).map(
        ([key, item]) => html`<${Tree} key=${key} name=${key} value=${item} open=${name === undefined && entries.length < 20} />`,
      )
    }
    ${open && entries.length > shown && html`<${More} rest=${entries.length - shown} onClick=${() => setShown(shown * 5)} />`}
  </details>`;
}
