// What both TypeScript clients look at in a gateway; it is told how its version of the SDK spells things.
export async function look(client, { call, server, asks }) {
  const seen = {};
  const text = (result) => result.content[0].text;
  const names = new Set((await client.listTools()).tools.map((tool) => tool.name));
  seen.listed = names.has(`${server}__add`) && names.has(`${server}__count`);
  seen.resources = (await client.listResources()).resources.some((each) => each.uri === `note://${server}/fixed`);
  seen.templates = (await client.listResourceTemplates()).resourceTemplates
    .some((each) => each.uriTemplate === `city://${server}/{name}/map`);
  seen.prompts = (await client.listPrompts()).prompts.some((each) => each.name === `${server}__greet`);
  seen.sum = text(await call(`${server}__add`, { a: 19, b: 23 }));
  const failed = await call(`${server}__fail`, {});
  seen.failed = [failed.isError, text(failed).endsWith("out of paper")];
  seen.forecast = (await call(`${server}__forecast`, { city: "Oslo" })).structuredContent;
  seen.note = (await client.readResource({ uri: `note://${server}/fixed` })).contents[0].text;
  seen.map = (await client.readResource({ uri: `city://${server}/Oslo/map` })).contents[0].text;
  const prompt = await client.getPrompt({ name: `${server}__greet`, arguments: { name: "Ann" } });
  seen.prompt = prompt.messages[0].content.text;
  const ref = { type: "ref/prompt", name: `${server}__greet` };
  seen.completed = (await client.complete({ ref, argument: { name: "tone", value: "k" } })).completion.values;
  seen.unknown = await call(`${server}__nothing`, {}).then((result) => result.isError, (error) => error.code);

  seen.progress = [];
  await call(`${server}__count`, { steps: 3 }, { onprogress: (news) => seen.progress.push(news.progress) });
  const many = Array.from({ length: 20 }, (_, number) => call(`${server}__add`, { a: number, b: 1 }));
  seen.many = (await Promise.all(many)).map(text);

  const giveUp = new AbortController();
  // The SDK reports its own rounds of questions as progress, with a message; the server's has none, and means it waits.
  const heard = (news) => news.message === undefined && giveUp.abort("enough");
  const waiting = call(`${server}__wait`, {}, { signal: giveUp.signal, onprogress: heard });
  await waiting.catch(() => {});
  // A call at the same time could be given a server of its own; this one is for the server that was told to stop.
  await new Promise((resolve) => setTimeout(resolve, 300));
  seen.stopped = text(await call(`${server}__was_stopped`, {}));

  seen.asked = [];
  for (const name of asks) seen.asked.push(text(await call(`${server}__${name}`, {})));
  return seen;
}

// How the transport of either version is made: to a URL with a token, or to a program that is started.
export function target({ Http, Stdio }, where, authorization) {
  if (!where.startsWith("http")) {
    const [command, ...args] = JSON.parse(where);
    return new Stdio({ command, args, env: process.env, stderr: "ignore" });
  }
  const headers = authorization ? { Authorization: authorization } : {};
  return new Http(new URL(where), { requestInit: { headers } });
}
