/** Prompts: a form with completion, and the rendered messages. */
import { post } from "../api.js";
import { CatalogView, Runner } from "../catalog.js";
import { useStore } from "../store.js";
import { html } from "../ui.js";

/** Arguments of a prompt or variables of a template, as a schema: all of them are texts. */
export const textSchema = (list = []) => ({
  type: "object",
  properties: Object.fromEntries(list.map(({ name, description }) => [name, { type: "string", description, maxLength: 300 }])),
  required: list.filter((argument) => argument.required).map((argument) => argument.name),
});

/** Suggestions of the server; what is filled in so far is the context. */
export const completer = (kind, id) => async (argument, value, context) =>
  (await post("/complete", { kind, id, argument, value, context })).values;

const row = (prompt) => html`<div class="item-head"><b>${prompt.name}</b></div><p>${prompt.title || prompt.description}</p>`;
const Prompt = ({ item }) =>
  html`<${Runner} kind="prompt" id=${item.id} verb="Render" schema=${textSchema(item.arguments)} complete=${completer("prompt", item.id)} />`;

export default function Prompts({ path: [id] }) {
  const prompts = useStore((data) => data.catalog?.prompts);
  return html`<${CatalogView} kind="prompt" id=${id} rows=${prompts} row=${row} detail=${Prompt}
    text="Choose one to fill it in and to see its messages." />`;
}
