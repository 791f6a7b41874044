// Searches the built site for words of newcomers, and fails unless the first hit of each is a guide:
// `node tests/docs/first_hits.mjs build/site`, which `make docs-build` runs; words after the folder replace the list.
//
// The search is the theme's own: its web worker runs here, with the index of the site. The numbers are the kinds of its messages.
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { runInNewContext } from 'node:vm';

const WORDS = [
  'tool', 'progress', 'lifespan', 'auth token', 'resource', 'prompt', 'middleware', 'client', 'elicitation', 'sandbox',
];
const GUIDE = /^(tutorial|how-to|explanation|examples)\//;
const [SETUP, QUERY] = [0, 2];

const [site, ...words] = process.argv.slice(2);
const workers = join(site, 'assets', 'javascripts', 'workers');
const script = readdirSync(workers).find((name) => /^search\..*\.js$/.test(name));

let receive;
let answered;
const scope = {
  addEventListener: (_, listener) => { receive = listener; },
  postMessage: (message) => answered(message.data),
};
scope.self = scope;
runInNewContext(readFileSync(join(workers, script), 'utf8'), scope);
const ask = (type, data) => new Promise((resolve) => {
  answered = resolve;
  receive({ data: { type, data } });
});

await ask(SETUP, { ...JSON.parse(readFileSync(join(site, 'search', 'search_index.json'), 'utf8')), options: {} });
let failed = false;
for (const word of words.length ? words : WORDS) {
  const { items } = await ask(QUERY, word);
  const first = items.length ? items[0][0].location : 'nothing';
  const isGuide = GUIDE.test(first);
  failed ||= !isGuide;
  console.log(`${isGuide ? 'ok    ' : 'FAILED'} the search for ${JSON.stringify(word)} finds ${first}`);
}
if (failed) console.log('A search finds no guide first. The weights are BOOSTS in docs/site_hooks.py.');
process.exitCode = failed ? 1 : 0;
