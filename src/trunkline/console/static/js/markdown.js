/**
 * Markdown of servers and models as vnodes: <Markdown text />. A subset on purpose (paragraphs, headings, lists, quotes,
 * tables, code, emphasis, links). HTML is shown as text, images as links (nothing is fetched), and a link shows its host
 * when its text does not. Each line is read once, so that no text takes more than linear time.
 */
import { html, Icon } from "./ui.js";

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+([^]*)$/;
const FENCE = /^\s*(```|~~~)/;
const MOST = 200_000; // Characters; more is no reading matter, and the plain view has it all.

export const Markdown = ({ text }) => html`<div class="md">${blocks(text.slice(0, MOST).split(/\r?\n/), 0)}</div>`;

/** Whether a text is worth rendering rather than showing as it is. */
export const looksLikeMarkdown = (text) =>
  /^(#{1,6} |```|[-*] .+\n *[-*] |\|.+\|\n\|[ :|-]+\|)|\*\*[^*\n]+\*\*|\[[^\][\n]+\]\(https?:/m.test(text.slice(0, 5000));

function blocks(lines, depth) {
  const out = [];
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    const heading = /^(#{1,6})\s+([^]*)$/.exec(line);
    const until = (stop) => {
      const from = i;
      while (i < lines.length && !stop(lines[i], i - from)) i++;
      return lines.slice(from, i);
    };
    if (!line.trim()) i++;
    else if (FENCE.test(line)) {
      const mark = FENCE.exec(line)[1];
      i++;
      const inside = until((next) => next.trim() === mark);
      i++;
      out.push(html`<pre tabIndex="0">${inside.join("\n")}</pre>`);
    } else if (heading) {
      // Below the headings of the page: h3 and smaller.
      out.push(html`<${heading[1].length < 3 ? "h3" : "h4"}>${inline(heading[2])}<//>`);
      i++;
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      out.push(html`<hr />`);
      i++;
    } else if (line.startsWith(">") && depth < 5) {
      out.push(
        html`<blockquote>
          ${blocks(
            until((next) => !next.startsWith(">")).map((next) => next.replace(/^> ?/, "")),
            depth + 1,
          )}
        </blockquote>`,
      );
    } else if (line.includes("|") && /^[\s:-]*\|[\s:|-]*$/.test(lines[i + 1] || "")) {
      const [head, , ...rows] = until((next) => !next.includes("|")).map(cells);
      out.push(html`<div class="scroll-x">
        <table>
          <thead><tr>${head.map((cell) => html`<th>${inline(cell)}</th>`)}</tr></thead>
          <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${inline(cell)}</td>`)}</tr>`)}</tbody>
        </table>
      </div>`);
    } else if (ITEM.test(line) && depth < 8) {
      const [, indent, mark] = ITEM.exec(line);
      const ordered = /\d/.test(mark);
      const items = [];
      for (const next of until(
        (next, n) =>
          n &&
          !next.startsWith(indent + " ") &&
          !(ITEM.exec(next)?.[1] === indent && /\d/.test(ITEM.exec(next)[2]) === ordered) &&
          next.trim() !== "",
      )) {
        const found = ITEM.exec(next);
        if (found && found[1].length <= indent.length) items.push([found[3]]);
        else items.at(-1).push(next.slice(indent.length + 2));
      }
      const list = items.map(
        (item) => html`<li>${item.some((part, n) => n && part.trim()) ? blocks(item, depth + 1) : inline(item[0])}</li>`,
      );
      out.push(ordered ? html`<ol start=${parseInt(mark, 10)}>${list}</ol>` : html`<ul>${list}</ul>`);
    } else {
      const text = until((next, n) => n && (!next.trim() || FENCE.test(next) || ITEM.test(next) || /^(#{1,6} |>)/.test(next)));
      out.push(html`<p>${inline(text.join("\n"))}</p>`);
    }
  }
  return out;
}

const cells = (line) =>
  line
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .map((cell) => cell.trim());

// Each alternative ends at its own first delimiter, and none crosses a line of its own kind: no backtracking.
const INLINE =
  /`([^`]+)`|\*\*([^*]+)\*\*|__([^_]+)__|\*([^*\s][^*]*)\*|(?<!\w)_([^_\s][^_]*)_(?!\w)|~~([^~]+)~~|!?\[([^\][]*)\]\(([^()\s]+)(?:\s[^()]*)?\)|<?(https?:\/\/[^\s<>"')\]]+)>?/g;

function inline(text) {
  const out = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    const [all, code, bold, bold2, italic, italic2, struck, label, target, bare] = found;
    out.push(text.slice(at, found.index));
    at = found.index + all.length;
    if (code !== undefined) out.push(html`<code>${code}</code>`);
    else if (bold || bold2) out.push(html`<strong>${inline(bold || bold2)}</strong>`);
    else if (italic || italic2) out.push(html`<em>${inline(italic || italic2)}</em>`);
    else if (struck) out.push(html`<del>${inline(struck)}</del>`);
    else out.push(html`<${Link} href=${target || bare} text=${label} />`);
  }
  out.push(text.slice(at));
  return out;
}

/** A link out: only http and https can be opened, and the host is always in sight. */
export function Link({ href, text }) {
  const address = URL.canParse(href) ? new URL(href) : null;
  if (!address || !/^https?:$/.test(address.protocol)) return html`<span class="dead" title=${href}>${text || href}</span>`;
  const shown = text || href;
  return html`<a href=${address.href} target="_blank" rel="noopener noreferrer">
    ${shown}
    ${shown.includes(address.host) ? null : html` <span class="host">${address.host}</span>`}
    <${Icon} name="external" />
  </a>`;
}
