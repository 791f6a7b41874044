// The TypeScript client package 2.x as client of the server at a URL; it writes what it saw as JSON.
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

import { answers, look } from "./ts_look.mjs";

const [url, mode, asked] = process.argv.slice(2);
const options = {
  capabilities: { elicitation: {}, sampling: {}, roots: {} },
  versionNegotiation: { mode: mode === "auto" || mode === "legacy" ? mode : { pin: mode } },
};
const client = new Client({ name: "ts2", version: "1" }, options);
client.setRequestHandler("elicitation/create", answers.person);
client.setRequestHandler("sampling/createMessage", answers.model);
client.setRequestHandler("roots/list", answers.roots);
const told = new Promise((resolve) => {
  client.setNotificationHandler("notifications/resources/updated", (notice) => resolve(notice.params.uri));
});

const Transport = url.endsWith("/sse") ? SSEClientTransport : StreamableHTTPClientTransport;
await client.connect(new Transport(new URL(url)));
const call = (name, given, options) => client.callTool({ name, arguments: given }, options);
const seen = await look(client, { call, asked: asked === "asked" });
seen.version = client.getNegotiatedProtocolVersion();
if (seen.version < "2026") await client.subscribeResource({ uri: "note://fixed" });
else await client.listen({ resourceSubscriptions: ["note://fixed"] });
await call("touch", { uri: "note://fixed" });
seen.told = await told;
await client.close();
process.stdout.write(JSON.stringify(seen));
