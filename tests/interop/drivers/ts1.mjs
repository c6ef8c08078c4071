// Driver for the TypeScript SDK of the first generation, `@modelcontextprotocol/sdk` 1.x: handshake era only.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { drive, opens, opensUrls, target } from './steps.mjs';

await drive(async () => {
  const { url, headers, urls } = target();
  const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
  const client = new Client({ name: 'portcullis-interop-ts1', version: '1.0.0' }, opensUrls(urls));
  if (urls) client.setRequestHandler(ElicitRequestSchema, opens(urls));
  await client.connect(transport);
  return {
    protocol: transport.protocolVersion,
    instructions: client.getInstructions(),
    tools: (options) => pages((page) => client.listTools(page, options), 'tools'),
    resources: (options) => pages((page) => client.listResources(page, options), 'resources'),
    prompts: (options) => pages((page) => client.listPrompts(page, options), 'prompts'),
    call: (params, options) => client.callTool(params, undefined, options),
    read: (params, options) => client.readResource(params, options),
    prompt: (params, options) => client.getPrompt(params, options),
    close: () => client.close(),
  };
});

async function pages(fetch, key) {
  const items = [];
  let cursor;
  do {
    const page = await fetch(cursor === undefined ? undefined : { cursor });
    items.push(...page[key]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return items;
}
