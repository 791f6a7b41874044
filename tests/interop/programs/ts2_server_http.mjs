// A server on the TypeScript server package 2.x over HTTP, which serves both eras; it writes its URL as JSON.
import { createServer } from "node:http";

import { toNodeHandler } from "@modelcontextprotocol/node";
import { acceptedContent, createMcpHandler, inputRequired, McpServer } from "@modelcontextprotocol/server";
import { z } from "zod";

const say = (text) => ({ content: [{ type: "text", text: String(text) }] });
let stopped = () => {};
const left = new Promise((resolve) => (stopped = resolve));

function build() {
  const server = new McpServer({ name: "ts2", version: "1" }, { instructions: "Be kind." });
  const numbers = z.object({ a: z.number().int(), b: z.number().int() });
  server.registerTool("add", { description: "Add.", inputSchema: numbers }, async ({ a, b }) => say(a + b));
  server.registerTool("fail", { description: "Fail." }, async () => ({ ...say("out of paper"), isError: true }));
  const steps = z.object({ steps: z.number() });
  server.registerTool("count", { description: "Count.", inputSchema: steps }, async ({ steps }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= steps; progress++) {
      await ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress } });
    }
    return say(steps);
  });
  server.registerTool("wait", { description: "Wait." }, async (ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    await ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress: 1 } });
    await new Promise((resolve) => ctx.mcpReq.signal.addEventListener("abort", resolve));
    stopped();
    return say("never");
  });
  server.registerTool("was_stopped", { description: "Tell." }, async () => left.then(() => say(true)));
  server.registerTool("ask_person", { description: "Ask." }, async (ctx) => {
    const form = z.object({ name: z.string() });
    const answer = acceptedContent(ctx.mcpReq.inputResponses, "who", form);
    if (answer) return say(`accept: ${answer.name}`);
    const who = inputRequired.elicit({ message: "Who?", requestedSchema: form });
    return inputRequired({ inputRequests: { who } });
  });
  server.registerTool("grow", { description: "Grow." }, async () => {
    handler.notify.toolsChanged();
    return say("grown");
  });
  server.registerResource("note", "note://fixed", {}, async () => ({
    contents: [{ uri: "note://fixed", text: "as it was" }],
  }));
  server.registerPrompt("greet", { argsSchema: z.object({ name: z.string() }) }, ({ name }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Greet ${name}.` } }],
  }));
  return server;
}

const handler = createMcpHandler(build);
const server = createServer(toNodeHandler(handler));
server.listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ http: `http://127.0.0.1:${server.address().port}/mcp` }));
});
