// The outer frame of a view (MCP Apps, "Sandbox proxy"): passes messages between the console and the page of a server.
// It runs on an origin of its own. The inner frame has the HTML of the page and an opaque origin: its scripts reach
// neither this document nor the console. The policy in this document's header holds for the inner frame too.
"use strict";
(() => {
  const host = window.parent;
  if (host === window) return;
  // The console passes its origin in the fragment. The header lets no other site frame this page, and a message
  // to a wrong origin is not delivered.
  const origin = decodeURIComponent(location.hash.slice(1));
  const OWN = "ui/notifications/sandbox-";
  const LARGEST = 1024 * 1024; // Characters of one message; the console accepts no more.
  const RATE = 50; // Messages a second, and
  const BURST = 200; // at once; the console accepts no more.
  const PATIENCE = 1000; // Messages that are dropped before the page is stopped.
  const FEATURES = { camera: "camera", microphone: "microphone", geolocation: "geolocation", clipboardWrite: "clipboard-write" };
  let inner = null;
  let left = BURST;
  let at = performance.now();
  let dropped = 0;

  const toHost = (message) => host.postMessage(message, origin);
  // An opaque origin has no name, so that "*" is the only way to write to it; the header decides what can be in it.
  const toPage = (message) => inner && inner.contentWindow.postMessage(message, "*");

  function load({ html, permissions }) {
    if (inner) return;
    inner = document.createElement("iframe");
    // No allow-same-origin, no top navigation, popups, forms, modals or downloads.
    inner.setAttribute("sandbox", "allow-scripts");
    inner.allow = Object.keys(permissions || {}).map((name) => FEATURES[name]).filter(Boolean).join("; ");
    inner.title = "The page of the server";
    inner.srcdoc = String(html);
    document.body.append(inner);
  }

  function admitted() {
    const now = performance.now();
    left = Math.min(BURST, left + ((now - at) / 1000) * RATE);
    at = now;
    if (left >= 1) return (left -= 1), true;
    if (++dropped > PATIENCE) {
      inner.remove();
      inner = null;
      toHost({ jsonrpc: "2.0", method: OWN + "stopped", params: { reason: "It sent too many messages." } });
    }
    return false;
  }

  function fromPage(sent) {
    if (!admitted() || !sent || sent.jsonrpc !== "2.0") return;
    let text;
    try {
      text = JSON.stringify(sent);
    } catch {
      return; // Not JSON: no message of the protocol.
    }
    if (text.length > LARGEST) {
      if (!sent.method || sent.id === undefined) return;
      return toPage({ jsonrpc: "2.0", id: sent.id, error: { code: -32000, message: "The message is too large." } });
    }
    // The copy is checked, since the console reads it: new String("ui/...") is an object here, and a string in JSON.
    const message = JSON.parse(text);
    if (typeof message.method !== "string" || !message.method.startsWith(OWN)) toHost(message);
  }

  window.addEventListener("message", (event) => {
    const message = event.data;
    if (inner && event.source === inner.contentWindow) return fromPage(message);
    if (event.source !== host || event.origin !== origin || !message || message.jsonrpc !== "2.0") return;
    if (message.method === OWN + "resource-ready") load(message.params || {});
    else if (!(typeof message.method === "string" && message.method.startsWith(OWN))) toPage(message);
  });
  toHost({ jsonrpc: "2.0", method: OWN + "proxy-ready", params: {} });
})();
