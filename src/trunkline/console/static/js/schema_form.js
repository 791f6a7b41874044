/**
 * Forms from JSON Schema.
 *   SchemaForm {schema, value, onChange, problems, complete?, titles?: labels are titles, json?: switch to JSON}
 *   initial(schema) → the first value     check(schema, value) → {pointer: problem}
 *   complete(name, text) → Promise<[text]>
 * An undefined value is left out. Text that is not JSON (yet) is an Unparsed: it stays in its field, and check reports
 * it. Schemas come from servers: references may be circular, and patterns may be made to hang a browser.
 */
import { base64Size, Button, bytes, html, Tabs, useEffect, useMemo, useRef, useState } from "./ui.js";

const DEPTH = 7; // Deeper levels are edited as JSON.
const LONG = /^(contents?|text|body|code|message|prompt|query|sql|script|description|markdown|patch)$/i;
const STEPS = 5000; // Subschemas that one check visits: circular alternatives would take for ever.
let forms = 0;
let steps = 0;

export class Unparsed {
  constructor(text, problem) {
    Object.assign(this, { text, problem });
  }
  toJSON() {
    return this.text;
  }
}

const isObject = (value) => !!value && typeof value === "object" && !Array.isArray(value) && !(value instanceof Unparsed);
const list = (value) => (value === undefined ? [] : [].concat(value));
const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const escaped = (key) => key.replace(/~/g, "~0").replace(/\//g, "~1");

/** Keywords that are not what they should be are ignored. */
const SHAPES = {
  allOf: Array.isArray,
  anyOf: Array.isArray,
  oneOf: Array.isArray,
  enum: Array.isArray,
  required: Array.isArray,
  properties: isObject,
  $defs: isObject,
  pattern: (item) => typeof item === "string",
};

/** The schema without $ref and allOf at its top; what cannot be resolved allows everything. */
function plain(schema, root, depth = 0) {
  let found = isObject(schema) ? schema : {};
  for (let i = 0; (found.$ref || found.$dynamicRef) && i < 16; i++) {
    const { $ref, $dynamicRef, ...rest } = found;
    found = { ...lookup(String($ref || $dynamicRef), root), ...rest };
  }
  const { allOf = [], ...own } = Object.fromEntries(Object.entries(found).filter(([key, item]) => SHAPES[key]?.(item) ?? true));
  return (depth > 3 ? [] : allOf.slice(0, 20))
    .map((part) => plain(part, root, depth + 1))
    .reduce(
      (a, b) => ({
        ...b,
        ...a,
        properties: { ...b.properties, ...a.properties },
        required: [...list(b.required), ...list(a.required)],
      }),
      own,
    );
}

/** A part of the same schema, by pointer (#/$defs/x) or by anchor (#x). */
function lookup(ref, root) {
  const keys = ref
    .split("/")
    .slice(1)
    .map((key) => key.replace(/~1/g, "/").replace(/~0/g, "~"));
  const found = /^#($|\/)/.test(ref)
    ? keys.reduce((at, key) => at?.[key], root)
    : Object.values(root.$defs || {}).find((part) => ref === `#${part.$anchor || part.$dynamicAnchor}`);
  return isObject(found) ? found : {};
}

/** What a field offers: {schema, nullable, options: [{value, label}]?, variants: [schema]?}. */
function shape(given, root, depth = 0) {
  const schema = plain(given, root);
  const types = list(schema.type).filter((type) => type !== "null");
  const { oneOf, anyOf, ...rest } = schema;
  const all = (oneOf || anyOf || []).map((variant) => plain(variant, root));
  const variants = all.filter((variant) => variant.type !== "null" && variant.const !== null);
  const nullable = schema.nullable || types.length < list(schema.type).length || variants.length < all.length;
  if (variants.length === 1 && depth < 5) return { ...shape({ ...variants[0], ...rest }, root, depth + 1), nullable };
  const options =
    variants.length && variants.every((variant) => "const" in variant)
      ? variants.map((variant) => ({ value: variant.const, label: variant.title ?? String(variant.const) }))
      : schema.enum?.map((value, i) => ({ value, label: String(schema.enumNames?.[i] ?? value) }));
  if (variants.length || types.length < 2)
    return {
      schema: types.length ? { ...schema, type: types[0] } : schema,
      nullable,
      options,
      variants: !options && variants.length ? variants : null,
    };
  return { schema, nullable, options, variants: types.map((type) => ({ ...schema, type })) };
}

export function initial(given, root = given, required = true, depth = 0) {
  const { schema, variants } = shape(given, root);
  if ("default" in schema) return structuredClone(schema.default);
  if (!required || depth > 3) return undefined; // A person opens deeper levels.
  if ("const" in schema) return schema.const;
  if (variants) return initial(variants[0], root, true, depth + 1);
  if (schema.type !== "object" && !schema.properties) return { array: [], boolean: false }[schema.type];
  const members = Object.entries(schema.properties || {}).map(([key, member]) => [
    key,
    initial(member, root, !!schema.required?.includes(key), depth + 1),
  ]);
  return Object.fromEntries(members.filter(([, value]) => value !== undefined));
}

// --- Checking: what helps while filling in; the server has the last word

const TYPES = { integer: "a whole number", object: "an object", array: "a list", boolean: "true or false", string: "a text" };
const FORMATS = {
  email: [/^[^\s@]+@[^\s@]+$/, "an e-mail address"],
  uri: [/^[a-z][a-z0-9+.-]*:\S+$/i, "an address such as https://example.com"],
  date: [/^\d{4}-\d\d-\d\d$/, "a date"],
};
const typeOf = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : Number.isInteger(value) ? "integer" : typeof value);

export function check(given, value, root = given, at = "", found = {}, depth = 0) {
  const schema = plain(given, root);
  const say = (wrong, text, where = at) => wrong && (found[where] ??= text);
  const inside = (member, item, key) => check(member, item, root, `${at}/${escaped(String(key))}`, found, depth + 1);
  if (value instanceof Unparsed) return (say(true, value.problem), found);
  if (depth === 0) steps = 0;
  if (depth > 20 || steps++ > STEPS) return found;
  const type = typeOf(value);
  const types = list(schema.type);
  say(
    types.length && !types.includes(type) && !(type === "integer" && types.includes("number")) && !(value === null && schema.nullable),
    `Must be ${types.map((name) => TYPES[name] || `a ${name}`).join(" or ")}`,
  );
  say("const" in schema && !equal(schema.const, value), `Must be ${JSON.stringify(schema.const)}`);
  say(schema.enum && !schema.enum.some((option) => equal(option, value)), "Choose one of the values");
  const variants = schema.oneOf || schema.anyOf;
  if (variants && !variants.some((variant) => fits(variant, value, root, depth))) {
    const before = Object.keys(found).length;
    check(variants[choose(variants, value, root, depth)], value, root, at, found, depth + 1);
    say(Object.keys(found).length === before, "Fits none of the alternatives");
  }
  const size = type === "string" || type === "array" ? value.length : value;
  const [low, high, noun] = {
    string: [schema.minLength, schema.maxLength, " characters"],
    array: [schema.minItems, schema.maxItems, " entries"],
  }[type] || [schema.minimum, schema.maximum, ""];
  say(size < low, value === "" ? "Required" : `At least ${low}${noun}`);
  say(size > high, `At most ${high}${noun}`);
  say(value <= schema.exclusiveMinimum, `More than ${schema.exclusiveMinimum}`);
  say(value >= schema.exclusiveMaximum, `Less than ${schema.exclusiveMaximum}`);
  if (type === "string") {
    const [pattern, name] = FORMATS[schema.format] || [];
    say(pattern && !pattern.test(value), `Must be ${name}`);
    say(schema.pattern && !matches(schema.pattern, value), `Must match ${schema.pattern}`);
  } else if (type === "array" && schema.items) value.forEach((item, i) => inside(schema.items, item, i));
  else if (type === "object") {
    for (const key of list(schema.required)) say(!Object.hasOwn(value, key), "Required", `${at}/${escaped(key)}`);
    for (const [key, item] of Object.entries(value)) {
      const member = Object.hasOwn(schema.properties || {}, key) ? schema.properties[key] : schema.additionalProperties;
      if (member === false && !schema.patternProperties) say(true, "The schema has no such member", `${at}/${escaped(key)}`);
      else if (isObject(member)) inside(member, item, key);
    }
  }
  return found;
}

const fits = (schema, value, root, depth) => !Object.keys(check(schema, value, root, "", {}, depth + 1)).length;

/** Test a pattern if it cannot take exponential time: no repeated groups, few repetitions, a short text. */
function matches(pattern, value) {
  if (pattern.length > 200 || value.length > 500 || /\)[+*{?]/.test(pattern) || pattern.split(/[+*{]/).length > 4) return true;
  try {
    return new RegExp(pattern, "u").test(value);
  } catch {
    return true; // Not a pattern for browsers.
  }
}

/** The alternative that a value is meant for: one that fits, else one with its constants, else one of its type. */
function choose(variants, value, root, depth = -1) {
  const scores = variants.map((variant) => {
    if (fits(variant, value, root, depth)) return 3;
    const schema = plain(variant, root);
    const constants = Object.entries(schema.properties || {}).filter(([, member]) => "const" in member);
    if (isObject(value) && constants.length) return constants.every(([key, member]) => value[key] === member.const) ? 2 : 0;
    return list(schema.type).includes(typeOf(value)) ? 1 : 0;
  });
  return scores.indexOf(Math.max(...scores));
}

// --- Fields

export function SchemaForm({ schema, value, onChange, problems = {}, complete, titles, json }) {
  const uid = useMemo(() => `f${++forms}`, []);
  const [mode, setMode] = useState("form");
  const text = mode === "json" || !(isObject(value) || value === undefined);
  const env = { root: schema, problems, complete, titles, uid };
  return html`<div class="form">
    ${json && html`<${Tabs} small label="Arguments as" tabs=${[
            { id: "form", label: "Form" },
            { id: "json", label: "JSON" },
          ]} value=${text ? "json" : "form"} onChange=${setMode} />`}
    ${
      text
        ? html`
          <${JsonText} value=${value ?? {}} set=${onChange} at="" id=${uid} label="Arguments" rows="8" />
          ${Object.entries(problems).map(([at, problem]) => html`<p class="problem" key=${at}><code>${at}</code> ${problem}</p>`)}`
        : html`<${Members} env=${env} schema=${plain(schema, schema)} value=${value} set=${onChange} at="" depth=${0} />`}
  </div>`;
}

function Members({ env, schema, value, set, at, depth }) {
  const current = isObject(value) ? value : {};
  const { properties = {}, additionalProperties: extra, required } = schema;
  const others = Object.keys(current).filter((key) => !Object.hasOwn(properties, key));
  const put = (key, next) => set(Object.fromEntries(Object.entries({ ...current, [key]: next }).filter(([, item]) => item !== undefined)));
  const rename = (from, to) =>
    to in current || set(Object.fromEntries(Object.entries(current).map(([key, item]) => [key === from ? to : key, item])));
  const field = (key, member, more) =>
    html`<${Field} key=${key} env=${env} name=${key} schema=${member}
      value=${Object.hasOwn(current, key) ? current[key] : undefined} set=${(next) => put(key, next)}
      at=${`${at}/${escaped(key)}`} depth=${depth} ...${more} />`;
  return html`
    ${Object.entries(properties).map(([key, member]) => field(key, member, { required: required?.includes(key) }))}
    ${others.map(
      (key, i) => html`<div class="entry" key=${i}>
        <input class="mono" aria-label="Name" value=${key} onChange=${(event) => rename(key, event.target.value)} />
        ${field(key, extra, { bare: true, required: true })}
        <${Drop} label=${`Remove ${key}`} onClick=${() => put(key, undefined)} />
      </div>`,
    )}
    ${
      extra
        ? html`<${Add} onClick=${() => put(`name${others.length + 1}`, initial(extra, env.root) ?? "")}>Add a member<//>`
        : !Object.keys(properties).length && html`<p class="faint">No arguments.</p>`
    }`;
}

const Add = ({ children, ...rest }) => html`<${Button} class="small" icon="plus" action="add" ...${rest}>${children}<//>`;
const Drop = ({ label, onClick }) =>
  html`<${Button} kind="quiet" class="small" icon="close" aria-label=${label} title=${label} onClick=${onClick} />`;

function Field({ env, name, schema: given, value, set, at, depth, required, bare }) {
  const { schema, nullable, options, variants } = shape(given, env.root);
  const { title, description } = schema;
  const kind = kindOf(schema, options, variants, value, name, depth);
  const empty = { object: {}, array: [], union: "" }[kind];
  const wide = empty !== undefined;
  const absent = wide && value == null;
  const id = env.uid + at;
  const problem = env.problems[at];
  const label = (env.titles && title) || name;
  const about = {
    id,
    "data-field": at,
    "aria-invalid": problem ? "true" : null,
    "aria-describedby": problem || description ? `${id}-help` : null,
    "aria-required": required ? "true" : null,
    "aria-label": bare ? name : null,
  };
  const props = { env, schema, options, variants, value, set, at, depth, name, required, about };
  return html`<div class="field ${wide ? "wide" : ""} ${bare ? "bare" : ""}" role=${wide ? "group" : null}
    aria-label=${wide ? name : null}>
    ${!bare && html`<div class="field-name ${env.titles ? "title" : ""}">
        ${wide ? html`<span>${label}</span>` : html`<label for=${id}>${label}</label>`}
        ${required && html`<i aria-hidden="true">*</i>`}
        ${nullable && html`<button type="button" class="chip" aria-pressed=${value === null}
            onClick=${() => set(value === null ? undefined : null)}>
            null
          </button>`}
        ${
          !required &&
          value !== undefined &&
          (wide || kind === "boolean") &&
          html`<${Drop} label=${`Leave out ${name}`} onClick=${() => set(undefined)} />`}
      </div>`}
    <div class="field-value">
      ${
        absent
          ? html`<${Add} onClick=${() => set(initial(given, env.root) ?? empty)}>Add${bare ? "" : ` ${name}`}<//>`
          : html`<${CONTROLS[kind]} ...${props} />`}
      <div id=${`${id}-help`}>
        ${problem && (absent || kind !== "union") && html`<p class="problem">${problem}</p>`}
        ${description && !bare && html`<p class="help">${description}</p>`}
      </div>
    </div>
  </div>`;
}

function kindOf(schema, options, variants, value, name, depth) {
  const { type, items, format } = schema;
  if (options) return "choice";
  if ("const" in schema) return "constant";
  if (variants || type === "array" || schema.properties || (type === "object" && schema.additionalProperties)) {
    if (depth > DEPTH || (type === "array" && !items && !variants)) return "json";
    return variants ? "union" : type !== "array" ? "object" : shape(items, schema).options ? "several" : "array";
  }
  if (type === "number" || type === "integer") return "number";
  if (type !== "string") return type === "boolean" ? type : "json";
  if (schema.contentEncoding === "base64" || format === "byte") return "file";
  if (["date", "date-time", "time"].includes(format)) return "date";
  return LONG.test(name) || schema.maxLength > 300 || schema.contentMediaType || /\n|.{120}/.test(value || "") ? "long" : "text";
}

const shown = (value) => (value instanceof Unparsed ? value.text : (value ?? ""));
/** An optional text that was emptied is left out. */
const typed =
  ({ set, required }) =>
  (event) =>
    set(event.target.value || (required ? "" : undefined));

const NUMBER = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i;
const number = (text) => {
  if (!text.trim()) return undefined;
  return NUMBER.test(text.trim()) ? Number(text) : new Unparsed(text, "Must be a number");
};

const CONTROLS = {
  text: (props) =>
    props.env.complete
      ? html`<${Suggest} ...${props} />`
      : html`<input ...${props.about} type=${{ email: "email", uri: "url" }[props.schema.format] || "text"}
        value=${shown(props.value)} placeholder=${props.schema.examples?.[0]} spellcheck=${false} autocomplete="off"
        onInput=${typed(props)} />`,
  long: (props) => html`<textarea ...${props.about} rows="3" value=${shown(props.value)} spellcheck=${false} onInput=${typed(props)} />`,
  number: ({
    about,
    value,
    set,
    schema: { minimum, maximum },
  }) => html`<input ...${about} class="short" inputmode="decimal" value=${shown(value)}
    placeholder=${[minimum, maximum].some((n) => n !== undefined) ? `${minimum ?? "…"} to ${maximum ?? "…"}` : ""}
    onInput=${(event) => set(number(event.target.value))} />`,
  boolean: ({ about, value, set }) =>
    html`<label class="check">
      <input ...${about} type="checkbox" checked=${value === true} onChange=${(event) => set(event.target.checked)} />
      ${String(value ?? "not set")}
    </label>`,
  choice: ({ about, options, value, set, required }) => {
    const at = options.findIndex((option) => equal(option.value, value));
    return html`<select ...${about} value=${at} onChange=${(event) => set(options[event.target.value]?.value)}>
      ${(!required || at < 0) && html`<option value="-1">${required ? "Choose…" : "—"}</option>`}
      ${options.map((option, i) => html`<option key=${i} value=${i}>${option.label}</option>`)}
    </select>`;
  },
  constant: ({ about, schema, value, set, required }) =>
    html`<label class="check">
      <input ...${about} type="checkbox" checked=${value !== undefined} disabled=${required && value !== undefined}
        onChange=${(event) => set(event.target.checked ? schema.const : undefined)} />
      <code>${JSON.stringify(schema.const)}</code>
    </label>`,
  date: ({ about, schema: { format }, value, set }) => {
    const exact = format === "date-time";
    const date = new Date(value);
    const local = exact && !isNaN(date) ? new Date(date - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
    return html`<input ...${about} class="short" type=${exact ? "datetime-local" : format}
      value=${exact ? local : shown(value)}
      onInput=${({ target: { value: text } }) => set(text ? (exact ? new Date(text).toISOString() : text) : undefined)} />`;
  },
  file: ({ about, value, set }) => {
    const latest = useRef();
    latest.current = set; // Other fields may change while the file is read.
    const read = ({ target: { files } }) => {
      const reader = new FileReader();
      reader.onload = () => latest.current(reader.result.slice(reader.result.indexOf(",") + 1));
      if (files[0]) reader.readAsDataURL(files[0]);
      else set(undefined);
    };
    return html`
      <input ...${about} type="file" onChange=${read} />
      ${value && html`<span class="faint">${bytes(base64Size(value))}</span>`}`;
  },
  several: ({ about: { "aria-required": _, "aria-invalid": __, ...about }, schema, value, set }) => {
    const chosen = list(value);
    return html`<div class="chips" role="group" ...${about}>
      ${shape(schema.items, schema).options.map(
        (option) => html`<button type="button" class="chip" key=${option.value}
          aria-pressed=${chosen.includes(option.value)}
          onClick=${() => set(chosen.includes(option.value) ? chosen.filter((item) => item !== option.value) : [...chosen, option.value])}>
          ${option.label}
        </button>`,
      )}
    </div>`;
  },
  json: ({ about, value, set }) => html`<${JsonText} ...${about} value=${value} set=${set} />`,
  object: (props) => html`<div class="nested"><${Members} ...${props} depth=${props.depth + 1} /></div>`,
  array: ({ env, schema: { items: item, maxItems }, value, set, at, depth, name }) => {
    const all = list(value);
    const add = () => set([...all, initial(item, env.root) ?? (plain(item, env.root).type === "string" ? "" : null)]);
    return html`<div class="nested">
      ${all.map(
        (entry, i) => html`<div class="entry" key=${i}>
          <${Field} bare required env=${env} name=${`${name} ${i + 1}`} schema=${item} value=${entry}
            set=${(next) => set(all.with(i, next ?? null))} at=${`${at}/${i}`} depth=${depth + 1} />
          <${Drop} label=${`Remove ${name} ${i + 1}`} onClick=${() => set(all.toSpliced(i, 1))} />
        </div>`,
      )}
      <${Add} disabled=${all.length >= maxItems} onClick=${add}>Add<//>
    </div>`;
  },
  union: Union,
};

/** What was filled in for one alternative comes back when it is chosen again. */
function Union({ env, variants, value, set, at, depth, name }) {
  const kept = useRef({});
  const [picked, setPicked] = useState(null);
  const chosen = picked ?? choose(variants, value, env.root);
  const pick = (next) => {
    kept.current[chosen] = value;
    setPicked(next);
    set(kept.current[next] ?? initial(variants[next], env.root) ?? "");
  };
  // The problems of the alternative that is shown; the check of the whole may have looked at another one.
  const wrong = Object.keys(env.problems).length > 0;
  const own = wrong ? { ...env, problems: check(variants[chosen], value, env.root, at, {}, 1) } : env;
  const tabs = variants.map((variant, id) => ({ id, label: variant.title || list(variant.type).join(" or ") || `Alternative ${id + 1}` }));
  return html`<div class="nested">
    <${Tabs} small label=${`Kind of ${name}`} tabs=${tabs} value=${chosen} onChange=${pick} />
    <${Field} bare required key=${chosen} env=${own} name=${name} schema=${variants[chosen]} value=${value} set=${set}
      at=${at} depth=${depth + 1} />
  </div>`;
}

function JsonText({ value, set, label, ...about }) {
  const source = value instanceof Unparsed ? value.text : value === undefined ? "" : JSON.stringify(value, null, 2);
  const [text, setText] = useState(source);
  const last = useRef(value);
  useEffect(() => {
    if (!equal(value, last.current)) setText(source); // Changed from elsewhere: an earlier call, the form.
  }, [value]);
  const onInput = (event) => {
    const given = event.target.value;
    setText(given);
    try {
      last.current = given.trim() ? JSON.parse(given) : undefined;
    } catch {
      last.current = new Unparsed(given, "Not valid JSON (texts need quotes)");
    }
    set(last.current);
  };
  return html`<textarea rows="2" aria-label=${label} ...${about} class="mono" value=${text} spellcheck=${false}
    placeholder="JSON" onInput=${onInput} />`;
}

/** A text with suggestions of the server; the newest request wins. */
function Suggest(props) {
  const { about, env, name, value, set } = props;
  const [found, setFound] = useState([]);
  const [at, setAt] = useState(-1);
  const turn = useRef(0);
  const ask = async (text) => {
    const mine = ++turn.current;
    await new Promise((resolve) => setTimeout(resolve, 120)); // Not for each key of a quick typist.
    const values = mine === turn.current ? await env.complete(name, text).catch(() => []) : [];
    if (mine === turn.current) (setFound(values), setAt(-1));
  };
  const close = () => (turn.current++, setFound([]));
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (found.length && step) setAt((at + step + found.length) % found.length);
    else if (found.length && event.key === "Enter" && at >= 0) (close(), set(found[at]));
    else if (found.length && event.key === "Escape") close();
    else return;
    event.preventDefault();
  };
  return html`<div class="suggest">
    <input ...${about} role="combobox" aria-expanded=${found.length > 0} aria-controls=${`${about.id}-list`}
      aria-activedescendant=${at >= 0 ? `${about.id}-${at}` : null} value=${shown(value)} autocomplete="off"
      spellcheck=${false} onFocus=${() => ask(shown(value))} onBlur=${close} onKeyDown=${onKeyDown}
      onInput=${(event) => (typed(props)(event), ask(event.target.value))} />
    <ul id=${`${about.id}-list`} role="listbox" aria-label="Suggestions" hidden=${!found.length}>
      ${found.map(
        (text, i) => html`<li role="option" id=${`${about.id}-${i}`} key=${text} aria-selected=${i === at}
          onMouseDown=${(event) => (event.preventDefault(), close(), set(text))}>
          ${text}
        </li>`,
      )}
    </ul>
  </div>`;
}
