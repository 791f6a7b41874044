// The official TypeScript SDK, second major version, in the era that `mode` names.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { run, textOf } from "./driving.mjs";

await run(async (target) => {
  const transport = target.url
    ? new StreamableHTTPClientTransport(new URL(target.url), { requestInit: { headers: target.headers } })
    : new StdioClientTransport({ command: target.command[0], args: target.command.slice(1), env: target.env });
  const client = new Client({ name: "fleet", version: "1" }, { versionNegotiation: { mode: target.mode } });
  await client.connect(transport);
  const { tools } = await client.listTools();
  const results = [];
  for (const [name, args] of target.calls) results.push(textOf(await client.callTool({ name, arguments: args })));
  await client.close();
  return { tools: tools.map((tool) => tool.name), results };
});
