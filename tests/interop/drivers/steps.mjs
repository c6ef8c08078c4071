// The step loop of the Node drivers. A driver hands over a connected client in the shape that `ts1.mjs`
// and `ts2.mjs` return; every step gets one answer line, also when the connection breaks.
import { Console } from 'node:console';
import { createInterface } from 'node:readline';

// Standard output is for answers alone, and an SDK may log there.
globalThis.console = new Console(process.stderr);

const URL_ELICITATION_REQUIRED = -32042;

/** URLs that the user was asked to open since the last answer. */
const asked = [];

/** URL, request headers and `urls` of the command line; an empty token means none. */
export function target() {
  const [url, token, ...rest] = process.argv.slice(2);
  const [urls, ...more] = rest.map((word) => /^urls=(.+)$/.exec(word)?.[1]);
  if (!url || more.length || (rest.length && !urls)) {
    console.error(`usage: ${process.argv[1]} URL [TOKEN [urls=ACTION]] < steps.jsonl`);
    process.exit(2);
  }
  return { url: new URL(url), headers: token ? { Authorization: `Bearer ${token}` } : {}, urls };
}

/** What a client declares whose user can open URLs, if the command line says that it can. */
export const opensUrls = (urls) => (urls ? { capabilities: { elicitation: { url: {} } } } : {});

/** A handler of elicitation that opens nothing and answers with that action. */
export const opens = (action) => async ({ params }) => {
  asked.push(params.url);
  return { action };
};

/** Runs the whole conversation and ends the process. */
export async function drive(connect) {
  let client;
  try {
    client = await connect();
  } catch (error) {
    say({ op: 'connect', ok: false, ...cause(error) });
    process.exit(1);
  }
  say({ op: 'connect', ok: true, protocol: client.protocol ?? null, instructions: client.instructions ?? null });
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    if (!line.trim()) continue;
    const reply = await answer(client, line);
    say({ ...reply, ...(asked.length && { asked: asked.splice(0) }) });
  }
  try {
    await client.close();
  } catch (error) {
    console.error('the connection ended with', cause(error));
    process.exit(1);
  }
  process.exit(0);
}

async function answer(client, line) {
  let op = '?';
  try {
    const step = JSON.parse(line);
    op = step.op;
    if (!Object.hasOwn(OPS, op)) throw new Error(`unknown op ${op}`);
    return { op, ...(await OPS[op](client, step)) };
  } catch (error) {
    return { op, ...cause(error) };
  }
}

const OPS = {
  async list(client, step) {
    return { tools: (await client.tools(options(step))).map((tool) => tool.name) };
  },
  async resources(client, step) {
    return { resources: (await client.resources(options(step))).map((resource) => resource.uri) };
  },
  async prompts(client, step) {
    return { prompts: (await client.prompts(options(step))).map((prompt) => prompt.name) };
  },
  async call(client, step) {
    const seen = [];
    const extra = step.progress ? { progress: seen } : {};
    const onprogress = ({ progress, message = null }) => seen.push({ progress, message });
    try {
      const result = await client.call(
        { name: step.name, arguments: step.arguments ?? {} },
        { ...options(step), ...(step.progress && { onprogress }) },
      );
      return {
        isError: result.isError ?? false,
        text: joined(result.content ?? []),
        structured: result.structuredContent ?? null,
        ...extra,
      };
    } catch (error) {
      return { ...cause(error), ...extra };
    }
  },
  async read(client, step) {
    const { contents } = await client.read({ uri: step.uri }, options(step));
    return {
      uris: contents.map((content) => content.uri),
      text: joined(contents),
      blobs: contents.filter((content) => 'blob' in content).length,
    };
  },
  async prompt(client, step) {
    const { messages } = await client.prompt({ name: step.name, arguments: step.arguments ?? {} }, options(step));
    return { roles: messages.map((message) => message.role), text: joined(messages.map((message) => message.content)) };
  },
};

/** Request options of a step; what it does not name stays at the SDK's default. */
function options(step) {
  return {
    ...(step.timeout_s !== undefined && { timeout: step.timeout_s * 1000 }),
    ...(step.reset_on_progress && { resetTimeoutOnProgress: true }),
    ...(step.fresh && { cacheMode: 'refresh' }),
  };
}

function joined(blocks) {
  return blocks.filter((block) => typeof block.text === 'string').map((block) => block.text).join('\n');
}

/** `code` is the JSON-RPC code, `status` the HTTP one; an error has one of them or neither. */
function cause(error) {
  const inner = error?.cause instanceof Error ? `: ${error.cause.message}` : '';
  const number = typeof error?.code === 'number' ? error.code : null;
  const http = error?.constructor?.name === 'StreamableHTTPError';
  if (number === URL_ELICITATION_REQUIRED) asked.push(...error.data.elicitations.map(({ url }) => url));
  return {
    error: `${error?.message ?? error}${inner}`,
    code: http ? null : number,
    status: http ? number : error?.data?.status ?? null,
    kind: typeof error?.code === 'string' ? error.code : error?.constructor?.name ?? 'unknown',
  };
}

function say(reply) {
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
