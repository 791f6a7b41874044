/** Small parts of the views: form fields, and a box that follows its end. */
import { html, useLayoutEffect, useRef } from "./ui.js";

/** A choice; options are texts, or [value, text]. */
export const Select = ({
  label,
  options,
  onChange,
  ...rest
}) => html`<select aria-label=${label} onChange=${(event) => onChange(event.target.value)} ...${rest}>
  ${options.map((option) => {
    const [value, text] = [option].flat();
    return html`<option key=${value} value=${value}>${text ?? value}</option>`;
  })}
</select>`;

/** A label with its input, or with a text area if there are `lines`, or with `children`; `name` is its data-field. */
export function Field({ label, name, hint, lines, onInput, children, ...rest }) {
  const props = {
    ...rest,
    "data-field": `/${name}`,
    class: "mono",
    spellcheck: false,
    autocomplete: "off",
    onInput: (event) => onInput(event.target.value),
  };
  return html`<label class="field">
    <span class="label">${label}</span>
    ${children || (lines ? html`<textarea ...${props} />` : html`<input ...${props} />`)}
    ${hint && html`<small class="help">${hint}</small>`}
  </label>`;
}

/** The attributes of a box that stays at its end while it grows, unless it was scrolled back. */
export function useEnd() {
  const box = useRef();
  const end = useRef(true);
  useLayoutEffect(() => {
    if (end.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  });
  return {
    ref: box,
    onScroll: ({ currentTarget: pane }) => {
      end.current = pane.scrollHeight - pane.scrollTop - pane.clientHeight < 40;
    },
  };
}
