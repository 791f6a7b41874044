// The TypeScript client package 2.x as client of a gateway; it writes what it saw as JSON, or the error that kept it out.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { look, target } from "./gateway_ts_look.mjs";
import { answers } from "./ts_look.mjs";

const [where, authorization, server, asks, mode] = process.argv.slice(2);
const client = new Client(
  { name: "ts2", version: "1" },
  {
    capabilities: { elicitation: {}, sampling: {}, roots: {} },
    versionNegotiation: { mode: mode === "auto" || mode === "legacy" ? mode : { pin: mode } },
  },
);
client.setRequestHandler("elicitation/create", answers.person);
client.setRequestHandler("sampling/createMessage", answers.model);
client.setRequestHandler("roots/list", answers.roots);

let seen;
try {
  await client.connect(target({ Http: StreamableHTTPClientTransport, Stdio: StdioClientTransport }, where, authorization));
  const call = (name, given, options) => client.callTool({ name, arguments: given }, options);
  seen = await look(client, { call, server, asks: JSON.parse(asks) });
  seen.version = client.getNegotiatedProtocolVersion();
} catch (error) {
  seen = { refused: error.data?.status ?? error.code ?? null, said: String(error) };
}
await client.close();
process.stdout.write(JSON.stringify(seen));
