// A server on the TypeScript SDK 1.x with tasks, over stdio, or over HTTP with the argument "http": it writes its URL then.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import { InMemoryTaskMessageQueue, InMemoryTaskStore } from "@modelcontextprotocol/sdk/experimental/tasks";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { CreateMessageResultSchema, ElicitResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";

const say = (text, isError = false) => ({ content: [{ type: "text", text: String(text) }], isError });
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function build() {
  const taskStore = new InMemoryTaskStore();
  const capabilities = { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } };
  const options = { capabilities, taskStore, taskMessageQueue: new InMemoryTaskMessageQueue() };
  const server = new McpServer({ name: "ts1", version: "1" }, options);

  // The work of a task: it returns the result, or throws.
  function register(name, taskSupport, inputSchema, work) {
    server.experimental.tasks.registerToolTask(
      name,
      { description: name, inputSchema, execution: { taskSupport } },
      {
        async createTask(given, extra) {
          const task = await extra.taskStore.createTask({ ttl: 60_000, pollInterval: 50 });
          const store = (status, result) => extra.taskStore.storeTaskResult(task.taskId, status, result);
          pause(20)
            .then(() => work(given, extra, task.taskId))
            .then((result) => store(result.isError ? "failed" : "completed", result))
            .catch((error) => store("failed", say(error.message, true)).catch(() => {}));
          return { task };
        },
        getTask: (given, extra) => extra.taskStore.getTask(extra.taskId),
        getTaskResult: (given, extra) => extra.taskStore.getTaskResult(extra.taskId),
      },
    );
  }

  register("double", "required", { number: z.number() }, async ({ number }) => say(2 * number));
  register("halve", "optional", { number: z.number() }, async ({ number }) => say(number / 2));
  register("fail", "required", {}, async () => say("out of paper", true));
  register("wait", "required", {}, async () => pause(60_000).then(() => say("never")));
  register("greet", "required", {}, async (given, extra, taskId) => {
    const form = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
    const params = { message: "Who are you?", requestedSchema: form };
    await extra.taskStore.updateTaskStatus(taskId, "input_required", "waiting for a name");
    const question = { method: "elicitation/create", params };
    const answer = await extra.sendRequest(question, ElicitResultSchema, { relatedTask: { taskId } });
    await extra.taskStore.updateTaskStatus(taskId, "working");
    return say(answer.action === "accept" ? `Hello, ${answer.content.name}!` : `Hello (${answer.action}).`);
  });

  // The client runs these requests as tasks.
  const follow = (name, request, schema, read) =>
    server.registerTool(name, { description: name }, async (extra) => {
      const kinds = [];
      const stream = server.server.experimental.tasks.requestStream(request, schema, {
        task: { ttl: 60_000 },
        relatedRequestId: extra.requestId,
      });
      for await (const message of stream) {
        kinds.push(message.type);
        if (message.type === "result") return say(`${read(message.result)} ${kinds[0]}`);
        if (message.type === "error") return say(message.error.message, true);
      }
    });
  const form = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
  const elicit = { method: "elicitation/create", params: { mode: "form", message: "Who are you?", requestedSchema: form } };
  follow("ask_person", elicit, ElicitResultSchema, (answer) => answer.content?.name ?? answer.action);
  const messages = [{ role: "user", content: { type: "text", text: "Say hello." } }];
  const sample = { method: "sampling/createMessage", params: { messages, maxTokens: 20 } };
  follow("ask_model", sample, CreateMessageResultSchema, (answer) => answer.content.text);
  return server;
}

if (process.argv[2] !== "http") {
  await build().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  const listener = createServer(async (request, response) => {
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (!transport) {
      const onsessioninitialized = (id) => sessions.set(id, transport);
      transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
      await build().connect(transport);
    }
    await transport.handleRequest(request, response);
  });
  listener.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
}
