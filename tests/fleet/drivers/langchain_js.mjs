// LangChain's adapters for JavaScript: the tools of a server as LangChain tools.
import { MultiServerMCPClient } from "@langchain/mcp-adapters";

import { find, run, textOf } from "./driving.mjs";

await run(async (target) => {
  const connection = target.url
    ? { transport: "http", url: target.url, headers: target.headers }
    : { transport: "stdio", command: target.command[0], args: target.command.slice(1), env: target.env };
  const client = new MultiServerMCPClient({ mcpServers: { fleet: connection } });
  const tools = await client.getTools();
  const names = tools.map((tool) => tool.name);
  const results = [];
  for (const [name, args] of target.calls) {
    const tool = tools[names.indexOf(find(names, name))];
    results.push(textOf(await tool.invoke(args)));
  }
  await client.close();
  return { tools: names, results };
});
