// LlamaIndex for TypeScript: the tools of a server as its own.
import { mcp } from "@llamaindex/tools";

import { find, run, textOf } from "./driving.mjs";

await run(async (target) => {
  const client = target.url
    ? mcp({ url: target.url, requestInit: { headers: target.headers } })
    : mcp({ command: target.command[0], args: target.command.slice(1), env: target.env });
  const tools = await client.tools();
  const names = tools.map((tool) => tool.metadata.name);
  const results = [];
  for (const [name, args] of target.calls) {
    const tool = tools[names.indexOf(find(names, name))];
    results.push(textOf(await tool.call(args)));
  }
  await client.cleanup();
  return { tools: names, results };
});
