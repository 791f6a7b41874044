/** Resources and templates: read, follow changes, fill in a URI template. */
import { del, get, post, segment } from "../api.js";
import { CatalogView, Runner } from "../catalog.js";
import { data, update, useStore } from "../store.js";
import { attempt, Button, bytes, html, Tag, useEffect, useMemo, useState } from "../ui.js";
import { completer, textSchema } from "./prompts.js";

const EXPRESSION = /\{([+#./;?&]?)([^{}]+)\}/g;
const names = (text) => text.split(",").map((name) => name.replace(/\*$|:\d+$/, ""));
const variables = (template) =>
  [...template.matchAll(EXPRESSION)].flatMap(([, operator, text]) =>
    names(text).map((name) => ({ name, required: !/[?&;]/.test(operator) })),
  );

/** Expand a URI template (RFC 6570, without lists). */
export function expand(template, values) {
  return template.replace(EXPRESSION, (all, operator, text) => {
    const encode = /[+#]/.test(operator) ? encodeURI : encodeURIComponent;
    const filled = names(text)
      .filter((name) => values[name])
      .map((name) => (/[;?&]/.test(operator) ? `${name}=` : "") + encode(values[name]));
    const between = operator === "?" ? "&" : /[./;&]/.test(operator) ? operator : ",";
    return filled.length ? operator.replace("+", "") + filled.join(between) : "";
  });
}

const FILTERS = [
  { id: "fixed", label: "resources", test: (row) => row.uri },
  { id: "templates", label: "templates", test: (row) => !row.uri },
];

const row = (row) =>
  html`
    <div class="item-head"><b>${row.title || row.name}</b>${!row.uri && html`<${Tag}>template<//>`}<${Updated} id=${row.id} /></div>
    <p class="mono">${row.uri || row.uri_template}</p>`;
const Updated = ({ id }) => useStore((data) => data.updated.has(id)) && html`<${Tag} tone="accent">updated<//>`;
const tags = (item) =>
  html`
    <code>${item.uri || item.uri_template}</code>${item.mime_type && html`<${Tag}>${item.mime_type}<//>`}
    <span class="faint">${bytes(item.size)}</span><${Updated} id=${item.id} />`;

export default function Resources({ path: [id] }) {
  const catalog = useStore((data) => data.catalog);
  const rows = useMemo(() => catalog && [...catalog.resources, ...catalog.templates], [catalog]);
  if (id && !catalog) return null; // Whether it is a template is not known yet.
  const template = catalog?.templates.some((row) => row.id === id);
  return html`<${CatalogView} kind="resource" itemKind=${template ? "template" : "resource"} id=${id} rows=${rows}
    filters=${catalog?.templates.length ? FILTERS : []} row=${row} tags=${tags} detail=${template ? Template : Resource}
    text="Choose one to read it, or to follow its changes." />`;
}

const Template = ({ item }) =>
  html`<${Runner} kind="resource" id=${item.id}
    target=${(values) => `${item.server}/${expand(item.uri_template, values)}`} verb="Read"
    schema=${textSchema(variables(item.uri_template))} complete=${completer("template", item.id)} />`;

function Resource({ item: { id } }) {
  const [followed, setFollowed] = useState(false);
  useEffect(
    () =>
      void get("/subscriptions").then(
        ({ subscriptions }) => setFollowed(subscriptions.some((entry) => (entry.id || entry) === id)),
        () => {},
      ),
    [id],
  );
  const follow = async () => {
    await attempt((followed ? del(`/subscriptions/${segment(id)}`) : post("/subscriptions", { id })).then(() => setFollowed(!followed)));
  };
  const seen = () => update({ updated: new Set([...data.updated].filter((other) => other !== id)) });
  return html`<${Runner} kind="resource" id=${id} verb="Read" onRun=${seen}
    actions=${html`<${Button} icon="bell" action="subscribe" aria-pressed=${followed} onClick=${follow}>
      ${followed ? "Following changes" : "Follow changes"}
    <//>`} />`;
}
