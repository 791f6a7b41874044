// What both TypeScript clients look at in our server; it is told how its version of the SDK spells things.
export async function look(client, spelling) {
  const seen = {};
  const names = [];
  let cursor;
  do {
    const page = await client.listTools(cursor ? { cursor } : undefined);
    names.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
  } while (cursor);
  seen.tools = names;
  const text = (result) => result.content[0].text;
  seen.sum = text(await spelling.call("add", { a: 19, b: 23 }));
  const failed = await spelling.call("fail", {});
  seen.failed = [failed.isError, text(failed)];
  seen.forecast = text(await spelling.call("forecast", { city: "Oslo" }));
  seen.note = (await client.readResource({ uri: "note://fixed" })).contents[0].text;
  seen.prompt = (await client.getPrompt({ name: "greet", arguments: { name: "Ann" } })).messages[0].content.text;
  const argument = { name: "tone", value: "k" };
  const completed = await client.complete({ ref: { type: "ref/prompt", name: "greet" }, argument });
  seen.completed = completed.completion.values;
  seen.refused = await client.getPrompt({ name: "no such" }).then(() => null, (error) => error.code);

  seen.progress = [];
  await spelling.call("count", { steps: 3 }, { onprogress: (news) => seen.progress.push(news.progress) });

  const many = Array.from({ length: 20 }, (_, number) => spelling.call("add", { a: number, b: 1 }));
  seen.many = (await Promise.all(many)).map(text);

  const giveUp = new AbortController();
  const waiting = spelling.call("wait", {}, { signal: giveUp.signal, onprogress: () => giveUp.abort("enough") });
  await waiting.catch(() => {});
  seen.stopped = text(await spelling.call("was_stopped", {}));

  if (spelling.asked) {
    seen.asked = [];
    for (const name of ["ask_person", "ask_model", "ask_roots"]) seen.asked.push(text(await spelling.call(name, {})));
  }
  return seen;
}

// How each client answers questions.
export const answers = {
  person: (request) => ({ action: "accept", content: { name: request.params.message.split(" ").at(-1), age: 7 } }),
  model: (request) => ({
    role: "assistant",
    model: "parrot",
    stopReason: "endTurn",
    content: { type: "text", text: [request.params.messages[0].content].flat()[0].text },
  }),
  roots: () => ({ roots: [{ uri: "file:///home/ann", name: "ann" }] }),
};
