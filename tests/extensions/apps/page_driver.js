// Runs the script of a page in a window of stand-ins: messages to the page arrive as lines on stdin, its messages leave
// as lines on stdout. The line {"click": ID} clicks an element, {"text": ID} prints its text, {"theme": true} the theme.
"use strict";
const fs = require("fs");
const readline = require("readline");
const vm = require("vm");

const html = fs.readFileSync(process.argv[2], "utf8");
const script = html.slice(html.indexOf("<script>") + 8, html.lastIndexOf("</script>"));
const elements = new Map();

class Element {
  constructor(kind) {
    this.kind = kind;
    this.children = [];
    this.listeners = {};
    this.own = "";
    this.style = { setProperty: (name, value) => { this.style[name] = value; } };
  }
  get textContent() { return this.own + this.children.map((each) => each.textContent).join(" "); }
  set textContent(text) { this.own = String(text); this.children = []; }
  append(...more) { this.children.push(...more); }
  replaceChildren(...all) { this.own = ""; this.children = all; }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  getBoundingClientRect() { return { width: 300.2, height: 200.7 }; }
}

const byId = (id) => {
  if (!html.includes(`id="${id}"`)) throw new Error(`there is no element ${id}`);
  if (!elements.has(id)) elements.set(id, new Element(id));
  return elements.get(id);
};
const print = (value) => process.stdout.write(JSON.stringify(value) + "\n");
const parent = { postMessage: (message) => print(message) };
const listeners = [];
const window = { parent, addEventListener: (name, listener) => listeners.push(listener) };
const document = {
  getElementById: byId,
  createElement: (kind) => new Element(kind),
  documentElement: new Element("html"),
};
class ResizeObserver {
  constructor(callback) { this.callback = callback; }
  observe() { this.callback(); }
}

vm.runInNewContext(script, { window, document, ResizeObserver, setTimeout, clearTimeout, console });

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.click) byId(message.click).listeners.click();
  // Later, so that what the page does about earlier messages is done.
  else if (message.text) setImmediate(() => print({ text: byId(message.text).textContent }));
  else if (message.theme) setImmediate(() => print({ theme: document.documentElement.style.colorScheme || "" }));
  else listeners.forEach((each) => each({ data: message.data, source: message.stranger ? {} : parent }));
}).on("close", () => process.exit(0));
