// The TypeScript SDK 1.x as client of a gateway; it writes what it saw as JSON, or the error that kept it out.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as types from "@modelcontextprotocol/sdk/types.js";

import { look, target } from "./gateway_ts_look.mjs";
import { answers } from "./ts_look.mjs";

const [where, authorization, server, asks] = process.argv.slice(2);
const client = new Client({ name: "ts1", version: "1" }, { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
client.setRequestHandler(types.ElicitRequestSchema, answers.person);
client.setRequestHandler(types.CreateMessageRequestSchema, answers.model);
client.setRequestHandler(types.ListRootsRequestSchema, answers.roots);

const transport = target({ Http: StreamableHTTPClientTransport, Stdio: StdioClientTransport }, where, authorization);
let seen;
try {
  await client.connect(transport);
  const call = (name, given, options) => client.callTool({ name, arguments: given }, undefined, options);
  seen = await look(client, { call, server, asks: JSON.parse(asks) });
  seen.version = transport.protocolVersion ?? null;
} catch (error) {
  seen = { refused: error.data?.status ?? error.code ?? null, said: String(error) };
}
await client.close();
process.stdout.write(JSON.stringify(seen));
