// The bench server on the TypeScript SDK 1.x (handshake revisions); `many` as argument registers 500 tools.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";

import { registerTools } from "./ts_tools.mjs";

const server = new McpServer({ name: "bench", version: "1" });
registerTools(server, { many: process.argv.includes("many") });
await server.connect(new StdioServerTransport());
