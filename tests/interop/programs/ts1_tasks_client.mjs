// The TypeScript SDK 1.x as client of our server with tasks, and with tasks of its own; it writes what it saw as JSON.
// Its arguments are the URL or the command of the server.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { InMemoryTaskStore } from "@modelcontextprotocol/sdk/experimental/tasks";
import * as types from "@modelcontextprotocol/sdk/types.js";

const target = process.argv.slice(2);
const taskStore = new InMemoryTaskStore();
const requests = { elicitation: { create: {} }, sampling: { createMessage: {} } };
const capabilities = { elicitation: {}, sampling: {}, tasks: { list: {}, cancel: {}, requests } };
const client = new Client({ name: "ts1", version: "1" }, { capabilities, taskStore });

// A request that is to become a task is answered with one, whose result comes a little later.
const answered = (answer) => async (request, extra) => {
  if (!request.params.task) return answer;
  const task = await extra.taskStore.createTask({ ttl: request.params.task.ttl, pollInterval: 20 });
  setTimeout(() => extra.taskStore.storeTaskResult(task.taskId, "completed", answer), 30);
  return { task };
};
const person = { action: "accept", content: { name: "Ann" } };
const model = { role: "assistant", model: "parrot", stopReason: "endTurn", content: { type: "text", text: "hello" } };
client.setRequestHandler(types.ElicitRequestSchema, answered(person));
client.setRequestHandler(types.CreateMessageRequestSchema, answered(model));

const told = [];
client.setNotificationHandler(types.TaskStatusNotificationSchema, (notice) => void told.push(notice.params.status));

const transport =
  target.length > 1
    ? new StdioClientTransport({ command: target[0], args: target.slice(1), stderr: "ignore" })
    : new StreamableHTTPClientTransport(new URL(target[0]));
await client.connect(transport);
const tools = Object.fromEntries((await client.listTools()).tools.map((tool) => [tool.name, tool.execution?.taskSupport]));

const tasks = client.experimental.tasks;
async function run(name, given, meanwhile) {
  const seen = { kinds: [] };
  for await (const message of tasks.callToolStream({ name, arguments: given })) {
    if (seen.kinds.at(-1) !== message.type) seen.kinds.push(message.type);
    if (message.type === "taskCreated") await meanwhile?.(message.task.taskId);
    if (message.type === "taskCreated") seen.id = message.task.taskId;
    if (message.type === "result") seen.result = [message.result.isError ?? false, message.result.content[0].text];
    if (message.type === "error") seen.error = message.error.message;
  }
  return seen;
}
const text = (result) => result.content[0].text;

const double = await run("double", { number: 21 });
const wait = await run("wait", { label: "ts1" }, (id) => tasks.cancelTask(id));
const seen = {
  support: [tools.double, tools.greet, tools.was_stopped ?? null],
  double: double.result,
  kinds: [double.kinds[0], double.kinds.at(-1)],
  greet: (await run("greet", {})).result,
  fail: await run("fail", {}).then((end) => end.result ?? end.error),
  broken: (await run("break_down", {})).error,
  cancelled: wait.error,
  status: (await tasks.getTask(wait.id)).status,
  stopped: text(await client.callTool({ name: "was_stopped", arguments: { label: "ts1" } })),
  result: text(await tasks.getTaskResult(double.id, types.CallToolResultSchema)),
  unknown: await tasks.getTask("none").then(() => null, (error) => error.code),
  listed: await tasks.listTasks().then((page) => page.tasks.some((task) => task.taskId === double.id), (error) => error.code),
  plain: text(await client.callTool({ name: "double", arguments: { number: 4 } })),
  model: text(await client.callTool({ name: "ask_model", arguments: {} })),
  person: text(await client.callTool({ name: "ask_person", arguments: {} })),
  told: told.includes("completed"),
};
await client.close();
taskStore.cleanup();
process.stdout.write(JSON.stringify(seen));
