/** Skills: instructions for models, with their frontmatter and files. */
import { CatalogView, Runner } from "../catalog.js";
import { link, useStore } from "../store.js";
import { bytes, Card, html, Icon } from "../ui.js";

const row = (skill) => html`<div class="item-head"><b>${skill.name}</b></div><p>${skill.description}</p>`;

export default function Skills({ path: [id] }) {
  const skills = useStore((data) => data.catalog?.skills);
  return html`<${CatalogView} kind="skill" id=${id} rows=${skills} row=${row}
    tags=${(item) => html`<code>${item.uri}</code>`} detail=${Skill} text="Choose one to read its instructions." />`;
}

function Skill({ item }) {
  const folder = item.uri?.replace(/[^/]*$/, "");
  const files = item.definition?.resources; // Or "dynamic": the skill is generated.
  return html`
    <${Runner} kind="skill" id=${item.id} verb="Load" />
    ${Array.isArray(files) && html`<${Card} title="Files">
        ${files.map(
          (file) => html`<a class="reslink" key=${file.uri} href=${link("resources", `${item.server}/${file.uri}`)}>
            <${Icon} name="resources" /><b>${file.uri.slice(folder.length)}</b><span class="faint">${bytes(file.size)}</span>
          </a>`,
        )}
      <//>`
    }`;
}
