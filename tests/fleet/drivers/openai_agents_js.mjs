// The OpenAI Agents SDK for JavaScript: its MCP servers, without a model. Each request gives up after five seconds.
import { MCPServerStdio, MCPServerStreamableHttp } from "@openai/agents";

import { run, textOf } from "./driving.mjs";

await run(async (target) => {
  const server = target.url
    ? new MCPServerStreamableHttp({ url: target.url, requestInit: { headers: target.headers } })
    : new MCPServerStdio({ command: target.command[0], args: target.command.slice(1), env: target.env });
  await server.connect();
  try {
    const tools = await server.listTools();
    const results = [];
    for (const [name, args] of target.calls) results.push(textOf(await server.callTool(name, args)));
    return { tools: tools.map((tool) => tool.name), results };
  } finally {
    await server.close();
  }
});
