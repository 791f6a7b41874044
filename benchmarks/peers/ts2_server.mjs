// The bench server on the TypeScript server package 2.x; `many` as argument registers 500 tools.
import { McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

import { registerTools } from "./ts_tools.mjs";

const many = process.argv.includes("many");
serveStdio(() => registerTools(new McpServer({ name: "bench", version: "1" }), { many }));
