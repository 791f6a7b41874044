// What a document has that a server could have put there: addresses that do something, frames, handlers, traces of a script.
() => {
  const names = ["href", "src", "action", "srcdoc", "formaction", "xlink:href", "poster", "data"];
  const found = [...document.querySelectorAll("*")].flatMap((node) =>
    names.filter((name) => node.hasAttribute(name)).map((name) => [node, name, node.getAttribute(name)]));
  const isBad = ([node, name, value]) => {
    if (node.matches("iframe[data-app-frame]")) return false;
    if (name === "src" && node.matches("img, audio")) return !/^data:(image|audio)\/[\w.+-]+;base64,/.test(value);
    const url = new URL(value, location.href);
    if (url.origin === location.origin) return false;
    return !(node.matches("a[target=_blank]") && /^https?:$/.test(url.protocol) && /noopener/.test(node.rel));
  };
  return {
    bad: found.filter(isBad).map(([node, name, value]) => `${node.tagName} ${name}=${value.slice(0, 100)}`),
    scripts: document.querySelectorAll("script").length,
    frames: document.querySelectorAll("iframe:not([data-app-frame]), object, embed, base, form[action]").length,
    handlers: [...document.querySelectorAll("*")].flatMap((node) => node.getAttributeNames().filter((name) => /^on/.test(name))),
    ran: "pwned" in globalThis || "pwned" in {},
  };
}
