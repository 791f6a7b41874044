// The TypeScript SDK 1.x as client of the server at a URL; it writes what it saw as JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as types from "@modelcontextprotocol/sdk/types.js";

import { answers, look } from "./ts_look.mjs";

const [url, asked] = process.argv.slice(2);
const capabilities = { elicitation: {}, sampling: {}, roots: {} };
const client = new Client({ name: "ts1", version: "1" }, { capabilities });
client.setRequestHandler(types.ElicitRequestSchema, answers.person);
client.setRequestHandler(types.CreateMessageRequestSchema, answers.model);
client.setRequestHandler(types.ListRootsRequestSchema, answers.roots);
const told = new Promise((resolve) => {
  client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, (notice) => resolve(notice.params.uri));
});

const Transport = url.endsWith("/sse") ? SSEClientTransport : StreamableHTTPClientTransport;
const transport = new Transport(new URL(url));
await client.connect(transport);
const call = (name, given, options) => client.callTool({ name, arguments: given }, undefined, options);
const seen = await look(client, { call, asked: asked === "asked" });
await client.subscribeResource({ uri: "note://fixed" });
await call("touch", { uri: "note://fixed" });
seen.told = await told;
seen.version = transport.protocolVersion ?? null;
await transport.terminateSession?.();
await client.close();
process.stdout.write(JSON.stringify(seen));
