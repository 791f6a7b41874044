// What the drivers in JavaScript share. See driving.py for what a driver reads and writes.
const plain = (name) => name.replace(/[^A-Za-z0-9]/g, "_");

export const find = (names, wanted) => {
  const found = names.find((name) => plain(name).endsWith(plain(wanted)));
  if (found === undefined) throw new Error(`no tool ${wanted}`);
  return found;
};

export const textOf = (value) => {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(textOf).join("");
  if (value && typeof value === "object") return textOf(value.text ?? value.content ?? JSON.stringify(value));
  return String(value);
};

export const run = async (look) => {
  for (const target of JSON.parse(process.argv[2])) {
    const seen = await look(target).catch((error) => ({ failed: String(error).slice(0, 300) }));
    process.stdout.write(`\nFLEET ${JSON.stringify(seen)}\n`);
  }
  process.stdout.write("", () => process.exit(0));
};
