/** The servers: what each one does and why, its output, its entry in the configuration, and how to add one. */
import { del, get, on, post, put } from "../api.js";
import { Field, Select, useEnd } from "../fields.js";
import { Markdown } from "../markdown.js";
import { link, navigate, useStore } from "../store.js";
import {
  ago, attempt, Button, Card, Code, confirmDialog, count, Dialog, Dot, dotted, Empty, ErrorNote, html, Icon, KeyValue, plural, Spinner,
  Tabs, Tag, toast, useEffect, useLayoutEffect, useLoad, useRef, useState,
} from "../ui.js";

const LINES = 1000; // Of stderr: as many as the console keeps.
const TROUBLE = ["broken", "misconfigured", "needs login", "unapproved", "partial", "waiting"];
const ACTIONS = { trust: "Review command…", login: "Sign in…", logout: "Sign out", start: "Start", stop: "Stop", restart: "Restart" };
const at = (name, rest = "") => `/servers/${encodeURIComponent(name)}${rest}`;

/** Open a sign-in page in a new tab. The address is a server's, so only web pages are opened. */
function openPage(url) {
  if (!/^https?:\/\//i.test(url)) return toast("The server's sign-in address is not a web page.", "bad");
  window.open(url, "_blank", "noopener,noreferrer");
  return toast("Complete the sign-in in the new tab; this page updates by itself.");
}

function Actions({ server, onTrust, whole }) {
  const [busy, setBusy] = useState("");
  const run = async (name) => {
    if (name === "trust") return onTrust(server.name);
    setBusy(name);
    const found = await attempt(name === "logout" ? del(at(server.name, "/login")) : post(at(server.name, `/${name}`)));
    setBusy("");
    return name === "login" && found?.url && openPage(found.url);
  };
  const asks = server.state === "needs login";
  const can = (name) =>
    name === "logout"
      ? whole && !asks && server.actions.includes("login")
      : server.actions.includes(name) && (name !== "login" || asks || whole);
  return html`<div class="row">
    ${Object.keys(ACTIONS)
      .filter(can)
      .map(
        (name) => html`<${Button} key=${name} class="small" action=${name} busy=${busy === name}
          kind=${name === "trust" || (name === "login" && asks) ? "primary" : ""} onClick=${() => run(name)}>
          ${ACTIONS[name]}
        <//>`,
      )}
  </div>`;
}

const severity = (server) => (["broken", "misconfigured"].includes(server.state) ? "bad" : "warn");
const Reason = ({ server }) =>
  server.reason &&
  html`<div class="note ${severity(server)}">
    <${Icon} name="warn" />
    <div><p>${server.reason}</p>${server.fix && html`<p class="soft">${server.fix}</p>`}</div>
  </div>`;
const offers = (server) =>
  ["tool", "resource", "prompt"]
    .filter((noun) => server[`${noun}s`])
    .map((noun) => plural(server[`${noun}s`], noun))
    .join(", ");
const State = ({ server }) => html`<span class="status-word"><${Dot} state=${server.state} label="" />${server.state}</span>`;

const ServerRow = ({ server, onTrust }) => html`<article class="server" data-item=${server.name}>
  <div class="grow">
    <h2><a href=${link("servers", server.name)}>${server.name}</a><${State} server=${server} /></h2>
    <p class="cut"><code class="faint" title=${server.url || server.command}>${server.url || server.command}</code></p>
    ${server.reason && html`
        <p class="reason ${severity(server)}">${server.reason}</p>
        ${server.fix && html`<p class="soft">${server.fix}</p>`}`}
  </div>
  <p class="faint">
    ${offers(server) && html`${offers(server)}<br />`}
    ${dotted(
      server.tokens > 0 && `${count(server.tokens)} tokens`,
      server.transport,
      server.era,
      server.restarts > 0 && plural(server.restarts, "restart"),
    )}
  </p>
  <${Actions} server=${server} onTrust=${onTrust} />
</article>`;

/** A word with what cannot be seen, or changes the direction of text, as escapes. */
const visible = (word) => word.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (mark) => `\\u{${mark.codePointAt(0).toString(16)}}`) || '""';

/** The command of a server, word by word. Approving needs a tick first; the focus starts on the safe button. */
function TrustDialog({ name, onClose }) {
  const { value: found, error } = useLoad(() => get(at(name, "/trust")), [name]);
  const [read, setRead] = useState(false);
  const safe = useRef();
  useLayoutEffect(() => safe.current?.querySelector("[data-action=cancel]").focus(), [found]);
  const approve = () => attempt(post(at(name, "/trust"), { fingerprint: found.fingerprint }).then(onClose));
  return html`<${Dialog} title="Run this command for “${name}”?" wide onClose=${onClose}>
    <${ErrorNote} error=${error} />
    ${found && html`
        <p class="soft">It runs on this computer with your rights: it can read and change your files and use the network.</p>
        <ol class="words" aria-label="Command, word by word">
          ${found.command.map((word, index) => html`<li key=${index}><code>${visible(word)}</code></li>`)}
        </ol>
        <${KeyValue} items=${[
              ["Folder", html`<code>${visible(found.cwd || "that of the host")}</code>`],
              [
                "Environment",
                found.env.length ? found.env.map((name) => html`<code class="variable">${visible(name)}</code>`) : "nothing of its own",
              ],
              ["Configured in", html`<code>${found.source}</code>`],
            ]} />
        ${found.notes.length > 0 && html`<div class="note warn">
            <${Icon} name="warn" />
            <div>${found.notes.map((note) => html`<p>${note}</p>`)}</div>
          </div>`}
        <div class="row end" ref=${safe}>
          <label class="row grow">
            <input type="checkbox" checked=${read} onChange=${(event) => setRead(event.target.checked)} />
            I have read the whole command
          </label>
          <${Button} action="cancel" onClick=${onClose}>Do not run<//>
          <${Button} kind="danger" action="trust" disabled=${!read} onClick=${approve}>Trust and run<//>
        </div>`}
  <//>`;
}

function Stderr({ server }) {
  const [lines, setLines] = useState([]);
  const end = useEnd();
  useEffect(() => {
    get(at(server.name, "/stderr")).then(
      (found) => setLines(found.lines),
      () => {},
    );
    return on("stderr", (event) => event.server === server.name && setLines((old) => old.concat(event.lines).slice(-LINES)));
  }, [server.name]);
  return (
    server.transport === "stdio" &&
    html`<${Card} title="Output" actions=${html`<span class="faint">stderr, live</span>`}>
      ${
        lines.length
          ? html`<div class="code wrap">
            <pre class="stderr" ...${end} tabIndex="0" role="log" aria-label="Output of ${server.name}">${lines.join("\n")}</pre>
          </div>`
          : html`<p class="faint">No output yet.</p>`}
    <//>`
  );
}

const VERDICTS = { true: ["ok", "fine"], false: ["bad", "problem"], null: ["warn", "note"] };

function Doctor({ server }) {
  const [checks, setChecks] = useState(null);
  const [busy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    const found = await attempt(post(at(server.name, "/doctor")));
    setBusy(false);
    if (found) setChecks(found.checks);
  };
  return html`<${Card} title="Doctor"
    actions=${html`<${Button} class="small" action="doctor" busy=${busy} onClick=${run}>Check<//>`}>
    ${
      checks
        ? html`<ul class="checks" aria-live="polite">
          ${checks.map(
            ({ name, ok, text, fix }) => html`<li key=${name}>
              <${Tag} tone=${VERDICTS[ok][0]}>${VERDICTS[ok][1]}<//>
              <div><b>${name}</b> ${text}${fix && html`<p class="soft">${fix}</p>`}</div>
            </li>`,
          )}
        </ul>`
        : html`<p class="faint">Checks the command, the connection, the login and the definitions, and shows how to fix problems.</p>`}
  <//>`;
}

function Entry({ server }) {
  const { value: found, again } = useLoad(() => get(at(server.name, "/entry")), [server.name]);
  const [text, setText] = useState(null);
  if (!found) return null;
  const shown = JSON.stringify(found.entry, null, 2);
  const save = async () => {
    try {
      await put(at(server.name), { entry: JSON.parse(text) });
    } catch (error) {
      return toast(error.fix ? `${error.message} ${error.fix}` : error.message, "bad");
    }
    setText(null);
    return again();
  };
  const remove = async () => {
    const sure = await confirmDialog({
      title: `Remove ${server.name}?`,
      text: `Its entry is removed from ${found.file}.`,
      action: "Remove",
      danger: true,
    });
    if (sure && (await attempt(del(at(server.name)).then(() => true)))) navigate("/servers");
  };
  const button = (name, label, onClick) =>
    server.actions.includes(name) && html`<${Button} class="small" action=${name} onClick=${onClick}>${label}<//>`;
  return html`<${Card} title="Configuration"
    actions=${text === null && html`${button("remove", "Remove…", remove)}${button("edit", "Edit", () => setText(shown))}`}>
    ${
      text === null
        ? html`<${Code} text=${shown} label="Entry" />`
        : html`
          <textarea class="mono" aria-label="Entry as JSON" data-field="/entry" spellcheck=${false} value=${text}
            onInput=${(event) => setText(event.target.value)} />
          <div class="row">
            <${Button} kind="primary" action="save" onClick=${save}>Save<//>
            <${Button} onClick=${() => setText(null)}>Cancel<//>
          </div>`}
    <p class="faint break">
      ${found.file}${found.line ? `:${found.line}` : ""}
      . Secrets are masked; a masked one that you leave as it is keeps its value.
    </p>
  <//>`;
}

function ServerPage({ server, onTrust }) {
  const { info, capabilities = {} } = server;
  const flags = (name) =>
    [
      name,
      ...Object.entries(capabilities[name] || {})
        .filter(([, value]) => value === true)
        .map(([flag]) => flag),
    ].join(" · ");
  return html`<div class="page">
    <header class="page-head">
      <h1><a class="faint" href="/servers">Servers</a> <code>${server.name}</code></h1>
      <${State} server=${server} /><span class="grow" />
      <${Actions} whole server=${server} onTrust=${onTrust} />
    </header>
    <${Reason} server=${server} />
    <div class="columns">
      <div>
        <${Card} title="About">
          <${KeyValue} items=${[
                ["Implementation", info && `${info.title || info.name} ${info.version || ""}`],
                [server.url ? "Address" : "Command", html`<code>${server.url || server.command}</code>`],
                ["Protocol", [server.transport, server.era].filter(Boolean).join(", ")],
                ["Process", server.pid],
                ["Since", server.since && ago(server.since)],
                ["Restarts", server.restarts || null],
                ["Offers", offers(server)],
                ["Left out", server.unusable ? `${plural(server.unusable, "definition")} that cannot be used` : null],
                ["Cost", server.tokens ? `${count(server.tokens)} tokens with every request to a model` : null],
                [
                  "Capabilities",
                  Object.keys(capabilities).length
                    ? html`<span class="row">${Object.keys(capabilities).map((name) => html`<${Tag}>${flags(name)}<//>`)}</span>`
                    : null,
                ],
              ]} />
        <//>
        ${server.instructions && html`<${Card} title="Instructions for the model"><${Markdown} text=${server.instructions} /><//>`}
        <${Entry} server=${server} />
      </div>
      <div><${Doctor} server=${server} /><${Stderr} server=${server} /></div>
    </div>
  </div>`;
}

// --- Adding servers

/** Split a command line at spaces that are not in quotes. */
const words = (line) =>
  [...line.matchAll(/(?:[^\s"']+|"[^"]*"|'[^']*')+/g)].map(([word]) =>
    word.replace(/"([^"]*)"|'([^']*)'/g, (_, double, single) => double ?? single),
  );
/** Lines such as NAME=value as an object. */
const pairs = (text, mark) =>
  Object.fromEntries(
    text
      .split("\n")
      .filter((line) => line.includes(mark))
      .map((line) => [line.slice(0, line.indexOf(mark)).trim(), line.slice(line.indexOf(mark) + 1).trim()]),
  );

function RegistryFields({ draft, set }) {
  const [url, setUrl] = useState("");
  const [found, setFound] = useState(null);
  const choose = (choice) => set({ choice, values: Object.fromEntries(choice.inputs.map((input) => [input.name, input.default || ""])) });
  const look = async (body) => {
    const answer = await attempt(post("/registry", body));
    if (!answer) return;
    setFound(answer);
    set({ name: answer.name });
    if (answer.choices.length) choose(answer.choices[0]);
  };
  const read = async (event) => event.target.files[0] && look({ text: await event.target.files[0].text() });
  return html`
    <p class="help">The server.json of a server in the official MCP registry: its address, or a file.</p>
    <div class="row">
      <input class="grow mono" type="url" aria-label="Address of a server.json" data-field="/registry"
        placeholder="https://…/server.json" value=${url} onInput=${(event) => setUrl(event.target.value)} />
      <${Button} action="look" disabled=${!url} onClick=${() => look({ url })}>Load<//>
      <label class="button">From a file…<input class="sr" type="file" accept=".json" onChange=${read} /></label>
    </div>
    ${found && html`
        <p class="note"><span><b>${found.id}</b><br />${found.description}${found.notes?.map((note) => html`<br />${note}`)}</span></p>
        <${Field} label="Run as">
          <${Select} options=${found.choices.map((choice, index) => [index, choice.label])}
            onChange=${(index) => choose(found.choices[index])} />
        <//>
        ${draft.choice?.inputs.map(
          (input) => html`<${Field} key=${input.name} name=${input.name}
            label="${input.name}${input.required ? " *" : ""}" hint=${input.description}
            type=${input.secret ? "password" : "text"} value=${draft.values[input.name]}
            onInput=${(value) => set({ values: { ...draft.values, [input.name]: value } })} />`,
        )}`
    }`;
}

function entryOf(kind, draft) {
  if (kind === "registry")
    return draft.choice && draft.choice.inputs.every((input) => !input.required || draft.values[input.name]) && draft.choice.entry;
  if (kind === "url") return draft.url && { url: draft.url, ...(draft.headers && { headers: pairs(draft.headers, ":") }) };
  const [command, ...args] = words(draft.command);
  return command && { command, args, ...(draft.env && { env: pairs(draft.env, "=") }), ...(draft.cwd && { cwd: draft.cwd }) };
}

/** [name, label, attributes] */
const FIELDS = {
  command: [
    ["command", "Command", { placeholder: "uvx mcp-server-git --repository ." }],
    ["env", "Environment", { lines: true, placeholder: "NAME=value", hint: "One on each line" }],
    ["cwd", "Folder", { placeholder: "that of the configuration" }],
  ],
  url: [
    ["url", "URL", { type: "url", placeholder: "https://example.com/mcp" }],
    ["headers", "Headers", { lines: true, placeholder: "Name: value", hint: "Not needed if the server has a login" }],
  ],
};

function AddDialog({ onClose }) {
  const [kind, setKind] = useState("command");
  const [draft, setDraft] = useState({ name: "", command: "", env: "", cwd: "", url: "", headers: "" });
  const set = (members) => setDraft((old) => ({ ...old, ...members }));
  const field = (name, label, rest) =>
    html`<${Field} key=${name} name=${name} label=${label} value=${draft[name]} onInput=${(value) => set({ [name]: value })} ...${rest} />`;
  const entry = entryOf(kind, draft);
  const add = () =>
    attempt(
      post("/servers", { name: draft.name, entry, ...(kind === "registry" && { values: draft.values }) }).then(() =>
        navigate(link("servers", draft.name)),
      ),
    );
  return html`<${Dialog} title="Add a server" wide onClose=${onClose} actions=${html`
      <span class="faint grow">It is started at once and runs with your rights.</span>
      <${Button} onClick=${onClose}>Cancel<//>
      <${Button} kind="primary" action="add" disabled=${!draft.name || !entry} onClick=${add}>Add<//>`}>
    <${Tabs} label="From" tabs=${[
          { id: "command", label: "Command" },
          { id: "url", label: "URL" },
          { id: "registry", label: "Registry" },
        ]} value=${kind} onChange=${setKind} />
    ${kind !== "registry" && FIELDS[kind].map(([name, label, rest]) => field(name, label, rest))}
    ${kind === "registry" && html`<${RegistryFields} draft=${draft} set=${set} />`}
    ${field("name", "Name", { placeholder: "git" })}
    ${entry && html`<${Code} text=${JSON.stringify(entry, null, 2)} label="Entry" />`}
  <//>`;
}

function ImportDialog({ onClose }) {
  const { value, error } = useLoad(() => get("/import"), []);
  const [chosen, setChosen] = useState([]);
  const key = (app, server) => `${app.file}\n${server.name}`;
  const add = async () => {
    for (const app of value.apps) {
      const names = app.servers.filter((server) => chosen.includes(key(app, server))).map((server) => server.name);
      if (names.length && !(await attempt(post("/import", { app: app.app, names })))) return;
    }
    onClose();
  };
  const toggle = (one) => setChosen(chosen.includes(one) ? chosen.filter((other) => other !== one) : [...chosen, one]);
  return html`<${Dialog} title="Import from other applications" wide onClose=${onClose} actions=${html`
      <${Button} onClick=${onClose}>Cancel<//>
      <${Button} kind="primary" action="import" disabled=${!chosen.length} onClick=${add}>Import ${chosen.length || ""}<//>`}>
    <${ErrorNote} error=${error} />${!value && !error && html`<${Spinner} label="Looking" />`}
    ${
      value &&
      !value.apps.length &&
      html`<p class="soft">
        No server was found in the configuration files of other applications, such as Claude Desktop, Cursor or VS Code. Use Add server.
      </p>`}
    ${value?.apps.map(
      (app) =>
        html`
          <h2 class="import-from">${app.app} <code class="faint">${app.file}</code></h2>
          ${app.servers.map(
            (server) => html`<label class="import" key=${key(app, server)}>
              <input type="checkbox" disabled=${server.state === "same"} checked=${chosen.includes(key(app, server))}
                onChange=${() => toggle(key(app, server))} />
              <span>
                <b>${server.name}</b> <${Tag} tone=${{ new: "ok", differs: "warn" }[server.state]}>${server.state}<//>
                <br />
                <code class="soft">${server.entry.url || [server.entry.command, ...(server.entry.args || [])].join(" ")}</code>
                ${server.notes.length > 0 && html`<small>${server.notes.join(". ")}</small>`}
              </span>
            </label>`,
          )}`,
    )}
  <//>`;
}

export default function Servers({ path: [name], query }) {
  const servers = useStore((data) => data.servers);
  const [trust, setTrust] = useState(null);
  const one = name && servers.find((server) => server.name === name);
  const rank = (server) => TROUBLE.indexOf(server.state) + 1 || 9;
  const back = () => navigate("/servers");
  return html`
    ${
      one
        ? html`<${ServerPage} key=${name} server=${one} onTrust=${setTrust} />`
        : html`<div class="page">
          <header class="page-head">
            <h1>Servers</h1>
            <span class="faint">${servers.filter((server) => server.state === "ready").length} of ${servers.length} ready</span>
            <span class="grow" />
            <${Button} icon="again" action="reload" onClick=${() => attempt(post("/reload"))}>Reload<//>
            <a class="button" data-action="import" href="/servers?import">Import…</a>
            <a class="button primary" data-action="add" href="/servers?add"><${Icon} name="plus" />Add server</a>
          </header>
          ${name && html`<p class="note warn">There is no server ${name}.</p>`}
          ${
            servers.length
              ? html`<div class="card flush">
                ${[...servers]
                  .sort((a, b) => rank(a) - rank(b))
                  .map(
                    (server) => html`<${ServerRow} key=${server.name} server=${server} onTrust=${setTrust} />`,
                  )}
              </div>`
              : html`<${Empty} icon="servers" title="No servers yet">
                Add one by its command or address, or import those of another application.
              <//>`}
        </div>`}
    ${trust && html`<${TrustDialog} name=${trust} onClose=${() => setTrust(null)} />`}
    ${"add" in query && html`<${AddDialog} onClose=${back} />`}
    ${"import" in query && html`<${ImportDialog} onClose=${back} />`}`;
}
