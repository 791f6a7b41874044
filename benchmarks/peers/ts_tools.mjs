// The bench tools for both TypeScript servers: same answers as the Python ones, text and structured content.
import { z } from "zod";

const answer = (value) => ({
  content: [{ type: "text", text: String(value) }],
  structuredContent: { result: value },
});

export function registerTools(server, { many }) {
  const add = {
    description: "Add two numbers.",
    inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
    outputSchema: z.object({ result: z.number().int() }),
  };
  const text = z.object({ result: z.string() });
  server.registerTool("add", add, async ({ a, b }) => answer(a + b));
  server.registerTool("add_sync", add, ({ a, b }) => answer(a + b));
  server.registerTool(
    "echo",
    { description: "Give the text back.", inputSchema: z.object({ text: z.string() }), outputSchema: text },
    async ({ text }) => answer(text),
  );
  server.registerTool(
    "blob",
    { description: "Make a text of the given size.", inputSchema: z.object({ size: z.number().int() }), outputSchema: text },
    async ({ size }) => answer("x".repeat(size)),
  );
  for (let number = 0; many && number < 496; number++) {
    const description = `Add two numbers, variant ${number}.`;
    const name = `tool_${String(number).padStart(3, "0")}`;
    server.registerTool(name, { ...add, description }, async ({ a, b }) => answer(a + b));
  }
  return server;
}
