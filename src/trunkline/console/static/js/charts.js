/** Small charts as SVG of our own. The drawing stretches to its box; all text is HTML beside it and does not. */
import { clock, html, useState } from "./ui.js";

const WIDTH = 600;
const HEIGHT = 120;

export const seriesClass = (index) => `series-${index % 6}`;
export const latency = (ms) =>
  ms == null ? "" : ms < 10 ? `${ms.toFixed(1)} ms` : ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;

/** The next number with a round half (1, 2, 4, 6, 8 times a power of ten) that is not below a value. */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

const isGap = (value) => value == null;

/** A line that breaks where more than two values in a row are missing; a value between two gaps is a dot. */
function Line({ values, tone, x, y }) {
  let [line, dots, last] = ["", "", -9];
  values.forEach((value, index) => {
    if (isGap(value)) return;
    line += `${index - last > 3 ? "M" : "L"}${x(index)} ${y(value)}`;
    if (index - last > 3 && values.slice(index + 1, index + 4).every(isGap)) dots += `M${x(index)} ${y(value)}h.01`;
    last = index;
  });
  return html`<path class="line ${tone}" d=${line} />${dots && html`<path class="line dots ${tone}" d=${dots} />`}`;
}

function stackedBars(series, x, y, width) {
  const floor = [];
  return series.map((one) =>
    one.values.map((value, index) => {
      if (!value) return null;
      const base = floor[index] || 0;
      const top = y((floor[index] = base + value));
      return html`<rect class=${one.tone} x=${x(index) - width / 2} y=${top} width=${width} height=${Math.max(y(base) - top, 1)} />`;
    }),
  );
}

/**
 * A chart over time. Its legend shows the values under the pointer; a table has the same numbers.
 *   series: [{name, tone, values (null: a gap), total}]   kind: "bars" (stacked) | "lines"   format: number → text
 *   at: the end of the last step, in seconds since the epoch   step: seconds
 */
export function TimeChart({ title, series, kind = "lines", at, step, format = String, note, empty = "Nothing yet" }) {
  const [under, setUnder] = useState(null);
  const steps = [...(series[0]?.values.keys() || [])];
  const tops = steps.flatMap((index) => {
    const values = series.map((one) => one.values[index] || 0);
    return kind === "bars" ? values.reduce((a, b) => a + b, 0) : values;
  });
  const highest = Math.max(0, ...tops);
  const most = ceiling(kind === "bars" ? Math.max(2, highest) : highest);
  const slot = WIDTH / Math.max(1, steps.length);
  const x = (index) => +((index + 0.5) * slot).toFixed(1);
  const y = (value) => +(HEIGHT - (value / most) * (HEIGHT - 4)).toFixed(1);
  const time = (index) => clock(at - (steps.length - 1 - index) * step).slice(0, step < 60 ? 8 : 5);
  const hover = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    setUnder(Math.min(steps.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * steps.length))));
  };
  const text = (value) => (value == null ? "–" : format(value));
  return html`<figure class="chart">
    <figcaption><h2>${title}</h2><span class="soft">${under === null ? note : time(under)}</span></figcaption>
    <div class="plot" onPointerMove=${hover} onPointerLeave=${() => setUnder(null)}>
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img"
        aria-label="${title}: ${highest ? `up to ${format(highest)}` : empty}">
        <title>${title}</title>
        ${[0, 0.5, 1].map((part) => html`<path class="grid" d="M0 ${y(most * part)}H${WIDTH}" />`)}
        ${under !== null && html`<rect class="under" x=${under * slot} width=${slot} height=${HEIGHT} />`}
        ${kind === "bars" ? stackedBars(series, x, y, slot * 0.72) : series.map((one) => html`<${Line} ...${one} x=${x} y=${y} />`)}
      </svg>
      ${
        highest
          ? [1, 0.5].map(
              (part) => html`<span class="tick" style=${{ top: `${(y(most * part) / HEIGHT) * 100}%` }}>
                ${format(most * part)}
              </span>`,
            )
          : html`<p class="soft">${empty}</p>`}
    </div>
    <div class="times" aria-hidden="true">
      ${steps.length > 0 && [0, 0.5, 1].map((part) => html`<span>${time(Math.round((steps.length - 1) * part))}</span>`)}
    </div>
    <${Legend} items=${series.map((one) => ({ ...one, text: text(under === null ? one.total : one.values[under]) }))} />
    <details>
      <summary>Table</summary>
      <div class="scroll-x" tabIndex="0" role="region" aria-label="${title} as a table">
        <table>
          <thead><tr><th scope="col">time</th>${series.map((one) => html`<th scope="col">${one.name}</th>`)}</tr></thead>
          <tbody>
            ${steps
              .filter((index) => series.some((one) => one.values[index]))
              .reverse()
              .map(
                (index) => html`<tr>
                  <th scope="row">${time(index)}</th>
                  ${series.map((one) => html`<td>${text(one.values[index])}</td>`)}
                </tr>`,
              )}
          </tbody>
        </table>
      </div>
    </details>
  </figure>`;
}

/** Names with their colours and values, as [{name, tone, text}]. */
export const Legend = ({ items }) =>
  html`<ul class="legend">
    ${items.map((item) => html`<li key=${item.name}><i class=${item.tone} />${item.name} <b>${item.text}</b></li>`)}
  </ul>`;

/** A line without axes for a tile or a table cell, where the number stands beside it. */
export function Spark({ values, tone = "series-0" }) {
  const most = Math.max(...values) || 1;
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
    <${Line} values=${values} tone=${tone} x=${(index) => +((index / Math.max(1, values.length - 1)) * 100).toFixed(1)}
      y=${(value) => +(22 - (value / most) * 20).toFixed(1)} />
  </svg>`;
}

/** A thin bar of parts, as [{name, tone, value}], of a whole. */
export const StackBar = ({ parts, whole, label }) => html`<div class="stackbar" role="img" aria-label=${label}>
  ${parts.map((part) => html`<span key=${part.name} class=${part.tone} style=${{ width: `${(part.value / (whole || 1)) * 100}%` }} />`)}
</div>`;

/** Bars on one time axis, as [{name, start, ms, tone, text}]. */
export function Waterfall({ bars }) {
  const end = Math.max(0.001, ...bars.map((bar) => bar.start + bar.ms));
  return html`<div class="waterfall">
    ${bars.map(
      (bar) => html`
        <span class="cut" title=${bar.name}>${bar.name}</span>
        <div><i class=${bar.tone} style=${{ marginLeft: `${(bar.start / end) * 98}%`, width: `max(3px, ${(bar.ms / end) * 98}%)` }} /></div>
        <span>${bar.text}</span>`,
    )}
  </div>`;
}
