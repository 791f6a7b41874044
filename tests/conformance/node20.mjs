// Lets the suite start on Node 20, which has no fs.globSync: `node --import ./node20.mjs <the suite>`.
//
// The suite imports that name for a command that is not used here, and an import of a name that does not exist is an
// error before anything runs. This file is loaded twice: as the import it registers itself, as a hook it takes the
// name out of the suite's source.
import { register } from 'node:module';
import { isMainThread } from 'node:worker_threads';

const SUITE = '/@modelcontextprotocol/conformance/dist/index.js';
const NAME = /\bglobSync as ([\w$]+),/;

if (isMainThread) register(import.meta.url);

export async function load(url, context, next) {
  const loaded = await next(url, context);
  if (!url.endsWith(SUITE)) return loaded;
  const source = loaded.source.toString();
  const found = NAME.exec(source);
  return found ? { ...loaded, source: `${source.replace(found[0], '')}\nvar ${found[1]};` } : loaded;
}
