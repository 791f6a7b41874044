// A server on the TypeScript SDK 1.x over HTTP, with sessions or over the old transport; it writes its URLs as JSON.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

const say = (text) => ({ content: [{ type: "text", text: String(text) }] });

function build() {
  const server = new McpServer({ name: "ts1", version: "1" }, { instructions: "Be kind." });
  const numbers = { a: z.number().int(), b: z.number().int() };
  server.registerTool("add", { description: "Add.", inputSchema: numbers }, async ({ a, b }) => say(a + b));
  server.registerTool("fail", { description: "Fail." }, async () => ({ ...say("out of paper"), isError: true }));
  server.registerTool("count", { description: "Count.", inputSchema: { steps: z.number() } }, async ({ steps }, extra) => {
    const progressToken = extra._meta?.progressToken;
    for (let progress = 1; progress <= steps; progress++) {
      await extra.sendNotification({ method: "notifications/progress", params: { progressToken, progress } });
    }
    return say(steps);
  });
  let stopped = () => {};
  const left = new Promise((resolve) => (stopped = resolve));
  server.registerTool("wait", { description: "Wait." }, async (extra) => {
    const progressToken = extra._meta?.progressToken;
    await extra.sendNotification({ method: "notifications/progress", params: { progressToken, progress: 1 } });
    await new Promise((resolve) => extra.signal.addEventListener("abort", resolve));
    stopped();
    return say("never");
  });
  server.registerTool("was_stopped", { description: "Tell." }, async () => left.then(() => say(true)));
  server.registerTool("ask_person", { description: "Ask." }, async (extra) => {
    const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
    const answer = await server.server.elicitInput({ message: "Who?", requestedSchema }, { relatedRequestId: extra.requestId });
    return say(`${answer.action}: ${answer.content?.name}`);
  });
  server.registerTool("grow", { description: "Grow." }, async () => {
    server.registerTool(`sprout-${randomUUID()}`, { description: "New." }, async () => say("new"));
    return say("grown");
  });
  server.registerResource("note", "note://fixed", {}, async () => ({
    contents: [{ uri: "note://fixed", text: "as it was" }],
  }));
  server.registerPrompt("greet", { argsSchema: { name: z.string() } }, ({ name }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Greet ${name}.` } }],
  }));
  return server;
}

const sessions = new Map();
const pairs = new Map();

async function streamable(request, response, json) {
  const id = request.headers["mcp-session-id"];
  let transport = id ? sessions.get(id) : undefined;
  if (id && !transport) return response.writeHead(404).end();
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      enableJsonResponse: json,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await build().connect(transport);
  }
  return transport.handleRequest(request, response);
}

const server = createServer(async (request, response) => {
  const url = new URL(request.url, "http://127.0.0.1");
  if (url.pathname === "/forget") {
    sessions.clear();
    response.writeHead(204).end();
  } else if (url.pathname === "/mcp" || url.pathname === "/json") {
    await streamable(request, response, url.pathname === "/json");
  } else if (url.pathname === "/sse" && request.method === "GET") {
    const transport = new SSEServerTransport("/messages", response);
    pairs.set(transport.sessionId, transport);
    await build().connect(transport);
  } else if (url.pathname === "/messages") {
    await pairs.get(url.searchParams.get("sessionId")).handlePostMessage(request, response);
  } else response.writeHead(404).end();
});
server.listen(0, "127.0.0.1", () => {
  const base = `http://127.0.0.1:${server.address().port}`;
  console.log(JSON.stringify({ http: `${base}/mcp`, json: `${base}/json`, sse: `${base}/sse`, forget: `${base}/forget` }));
});
