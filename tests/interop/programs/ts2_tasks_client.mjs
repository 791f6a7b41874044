// The TypeScript client package 2.x with the package of the tasks extension, as client of our server with tasks; it
// writes what it saw as JSON. Its arguments are "legacy" or a revision, and the URL or the command of the server.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import * as extension from "@modelcontextprotocol/ext-tasks/client";
import { bindTaskReceiver } from "@modelcontextprotocol/ext-tasks/receiver";

const [mode, ...target] = process.argv.slice(2);
const clientInfo = { name: "ts2", version: "1" };
const requests = { sampling: { createMessage: {} } };
const legacy = mode === "legacy";
const capabilities = {
  elicitation: {},
  sampling: {},
  ...(legacy ? { tasks: { list: {}, cancel: {}, requests } } : { extensions: { "io.modelcontextprotocol/tasks": {} } }),
};
const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode: legacy ? "legacy" : { pin: mode } } });
const person = { action: "accept", content: { name: "Ann" } };
const model = { role: "assistant", model: "parrot", stopReason: "endTurn", content: { type: "text", text: "hello" } };

const transport =
  target.length > 1
    ? new StdioClientTransport({ command: target[0], args: target.slice(1), stderr: "ignore" })
    : new StreamableHTTPClientTransport(new URL(target[0]));

// The client checks results of calls against the core protocol, which knows no tasks: such requests go around it.
const waiting = new Map();
let count = 0;
function rawDispatch(request) {
  const id = `raw-${++count}`;
  return new Promise((resolve, reject) => {
    waiting.set(id, resolve);
    transport.send({ jsonrpc: "2.0", id, ...request }).catch(reject);
  });
}

let receiver;
if (legacy) {
  receiver = bindTaskReceiver(client, { methods: { "sampling/createMessage": true }, sampling: async () => model });
}
await client.connect(transport);
const deliver = transport.onmessage;
transport.onmessage = (message, ...more) => {
  const resolve = waiting.get(message.id);
  if (!resolve) return deliver(message, ...more);
  waiting.delete(message.id);
  resolve(message.error ? { kind: "error", error: message.error } : { kind: "result", result: message.result });
};

const { tools } = await client.listTools();
const session = extension.createTaskSessionFromClient(client, {
  endpointId: "ours",
  rawDispatch,
  v2RequestFraming: { protocolVersion: client.getNegotiatedProtocolVersion(), clientInfo, clientCapabilities: capabilities },
  onInputRequest: extension.createApplicationInputHandler({
    elicitation: async () => person,
    sampling: async () => model,
    roots: async () => ({ roots: [] }),
  }),
});

async function run(name, given = {}, meanwhile) {
  const declared = tools.find((tool) => tool.name === name);
  const declaration = extension.toolDeclarationFromMcpTool(declared);
  const execution = await session.callTool(name, given, { declaration, task: { preference: "prefer" } });
  await meanwhile?.(execution);
  const { outcome } = await execution.settle();
  const said = outcome.result?.content[0].text ?? outcome.error?.message;
  return [execution.kind, outcome.status, said ?? null];
}

const seen = {
  version: client.getNegotiatedProtocolVersion(),
  double: await run("double", { number: 21 }),
  greet: await run("greet"),
  "greet first": await run("greet_first"),
  fail: await run("fail"),
  broken: await run("break_down"),
  cancelled: await run("wait", { label: "ts2" }, (execution) => execution.cancel()),
  stopped: (await run("was_stopped", { label: "ts2" }))[2],
};
if (legacy) seen.model = (await run("ask_model"))[2];
await session.close();
receiver?.close();
await client.close();
process.stdout.write(JSON.stringify(seen));
