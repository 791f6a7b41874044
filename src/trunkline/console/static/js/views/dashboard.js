/** The dashboard: calls, errors, latency and tokens of each server over time. */
import { get } from "../api.js";
import { Spark, TimeChart, latency, seriesClass } from "../charts.js";
import { Card, Chips, Empty, ErrorNote, count, html, plural, useEffect, useLoad, useState } from "../ui.js";

const WINDOWS = [
  { id: 900, label: "15 min" },
  { id: 3600, label: "1 h" },
  { id: 21600, label: "6 h" },
  { id: 86400, label: "24 h" },
];
const REFRESH = 10_000; // Milliseconds; a step of the shortest window is about as long.

/** Join the values of several servers, step by step; a step is null if all of them are. */
const joined = (servers, name, join) =>
  (servers[0]?.[name] || []).map((_, index) =>
    servers
      .map((server) => server[name][index])
      .filter((value) => value != null)
      .reduce((a, b) => (a === null ? b : join(a, b)), null),
  );
const sums = (servers, name) => joined(servers, name, (a, b) => a + b);

const Tile = ({ label, value, note, values, tone }) =>
  html`<div class="tile">
    <span class="soft">${label}</span><b>${value}</b><span class="soft">${note}</span>
    <${Spark} values=${values} tone=${tone} />
  </div>`;

function Tiles({ servers }) {
  const total = (name) => servers.reduce((all, server) => all + (server.totals[name] || 0), 0);
  const [calls, errors] = [total("calls"), total("errors")];
  const slowest = servers.reduce((worst, server) => ((server.totals.p95 ?? -1) > (worst?.totals.p95 ?? -1) ? server : worst), null);
  return html`<div class="tiles">
    <${Tile} label="Calls" value=${count(calls)} note=${plural(servers.length, "server")} values=${sums(servers, "calls")} />
    <${Tile} label="Errors" value=${count(errors)}
      note=${calls ? `${((errors / calls) * 100).toFixed(1)} % of calls` : ""} values=${sums(servers, "errors")}
      tone="series-bad" />
    <${Tile} label="Slowest server, p95" value=${latency(slowest?.totals.p95) || "–"} note=${slowest?.name}
      values=${joined(servers, "p95", Math.max)} tone="series-3" />
    <${Tile} label="Tokens of results" value=${count(total("tokens"))} note="estimated" values=${sums(servers, "tokens")} tone="series-1" />
  </div>`;
}

const ServerTable = ({ servers, chosen, choose }) => html`<${Card} title="By server">
  <div class="scroll-x">
    <table class="numbers">
      <thead>
        <tr>
          ${["server", "calls", "", "errors", "p50", "p95", "p99", "tokens"].map(
            (name) => html`<th scope="col">
              ${name || html`<span class="sr">calls over time</span>`}
            </th>`,
          )}
        </tr>
      </thead>
      <tbody>
        ${servers.map(
          (server) => html`<tr key=${server.name} data-server=${server.name}>
            <th scope="row">
              <button type="button" class="plain-button" aria-pressed=${server.name === chosen}
                onClick=${() => choose(server.name === chosen ? "" : server.name)}>
                <i class="swatch ${server.tone}" />${server.name}
              </button>
            </th>
            <td>${count(server.totals.calls)}</td>
            <td><${Spark} values=${server.calls} tone=${server.tone} /></td>
            <td class=${server.totals.errors ? "bad" : ""}>${server.totals.errors}</td>
            ${["p50", "p95", "p99"].map((name) => html`<td>${latency(server.totals[name])}</td>`)}
            <td>${count(server.totals.tokens)}</td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>
<//>`;

export default function Dashboard() {
  const [window, setWindow] = useState(3600);
  const [chosen, setChosen] = useState("");
  const { value, error, again } = useLoad(() => get("/metrics", { window }), [window]);
  const [shown, setShown] = useState(null);
  useEffect(() => {
    if (value) setShown(value);
  }, [value]);
  useEffect(() => {
    const timer = setInterval(again, REFRESH);
    return () => clearInterval(timer);
  }, []);
  const all = (shown?.servers || [])
    .filter((server) => server.totals.calls)
    .map((server, index) => ({ ...server, tone: seriesClass(index) }));
  const one = all.find((server) => server.name === chosen);
  const servers = one ? [one] : all;
  const step = shown?.step > 60 ? `${shown.step / 60} min` : "minute";
  const series = (name) =>
    servers.map((server) => ({ name: server.name, tone: server.tone, values: server[name], total: server.totals[name] }));
  const percentiles = () =>
    ["p50", "p95", "p99"].map((name, index) => ({
      name,
      values: one[name],
      total: one.totals[name],
      tone: ["series-1", "series-0", "series-3"][index],
    }));
  const chart = (props) => html`<${Card}><${TimeChart} at=${shown.at} step=${shown.step} ...${props} /><//>`;
  return html`<section class="page" data-view="dashboard" aria-label="Dashboard">
    <header class="page-head">
      <h1>Dashboard</h1>
      ${one && html`<button type="button" class="chip" aria-pressed="true" aria-label="Show all servers"
          onClick=${() => setChosen("")}>
          ${one.name} ×
        </button>`}
      <span class="grow" />
      <${Chips} label="Time" tabs=${WINDOWS} value=${window} onChange=${setWindow} />
    </header>
    <${ErrorNote} error=${error} />
    ${
      shown &&
      (all.length
        ? html`
          <${Tiles} servers=${servers} />
          <div class="chart-grid">
            ${chart({ title: "Calls", kind: "bars", series: series("calls"), format: count, note: `per ${step}` })}
            ${
              one
                ? chart({ title: "Latency", series: percentiles(), format: latency, note: "" })
                : chart({ title: "Latency", series: series("p95"), format: latency, note: "p95: 95 of 100 calls are faster" })
            }
            ${chart({ title: "Tokens", kind: "bars", series: series("tokens"), format: count, note: "of results, estimated" })}
            ${chart({ title: "Errors", kind: "bars", series: series("errors"), format: count, empty: "No errors" })}
          </div>
          <${ServerTable} servers=${all} chosen=${chosen} choose=${setChosen} />`
        : html`<${Empty} icon="dashboard" title="No calls yet">
          Run a tool or start a chat: calls, errors and latency of each server appear here.
        <//>`)
    }
  </section>`;
}
