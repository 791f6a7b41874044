// Vercel's AI SDK: the tools of a server as its own.
import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport } from "@ai-sdk/mcp/mcp-stdio";

import { find, run, textOf } from "./driving.mjs";

await run(async (target) => {
  const transport = target.url
    ? { type: "http", url: target.url, headers: target.headers }
    : new Experimental_StdioMCPTransport({
        command: target.command[0],
        args: target.command.slice(1),
        env: target.env,
      });
  const client = await createMCPClient({ transport });
  const tools = await client.tools();
  const results = [];
  for (const [name, args] of target.calls) {
    const tool = tools[find(Object.keys(tools), name)];
    results.push(textOf(await tool.execute(args, { messages: [], toolCallId: "1" })));
  }
  await client.close();
  return { tools: Object.keys(tools), results };
});
