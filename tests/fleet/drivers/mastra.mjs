// Mastra: the tools of a server as its own.
import { MCPClient } from "@mastra/mcp";

import { find, run, textOf } from "./driving.mjs";

await run(async (target) => {
  const server = target.url
    ? { url: new URL(target.url), requestInit: { headers: target.headers } }
    : { command: target.command[0], args: target.command.slice(1), env: target.env };
  const client = new MCPClient({ servers: { fleet: server } });
  try {
    const tools = await client.listTools();
    const names = Object.keys(tools);
    const results = [];
    for (const [name, args] of target.calls) results.push(textOf(await tools[find(names, name)].execute(args, {})));
    return { tools: names.map((name) => name.replace(/^fleet_/, "")), results };
  } finally {
    await client.disconnect();
  }
});
