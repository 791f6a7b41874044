// The official TypeScript SDK, first major version.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { run, textOf } from "./driving.mjs";

await run(async (target) => {
  const transport = target.url
    ? new StreamableHTTPClientTransport(new URL(target.url), { requestInit: { headers: target.headers } })
    : new StdioClientTransport({ command: target.command[0], args: target.command.slice(1), env: target.env });
  const client = new Client({ name: "fleet", version: "1" });
  await client.connect(transport);
  const { tools } = await client.listTools();
  const results = [];
  for (const [name, args] of target.calls) results.push(textOf(await client.callTool({ name, arguments: args })));
  await client.close();
  return { tools: tools.map((tool) => tool.name), results };
});
