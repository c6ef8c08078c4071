// What both drivers of `@modelcontextprotocol/client` 2.x share. Its list calls walk all pages by themselves.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { opens, opensUrls, target } from './steps.mjs';

/** A connected client with these options, in the shape that the step loop takes. */
export async function connect(options) {
  const { url, headers, urls } = target();
  const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
  const client = new Client({ name: 'portcullis-interop-ts2', version: '1.0.0' }, { ...options, ...opensUrls(urls) });
  if (urls) client.setRequestHandler('elicitation/create', opens(urls));
  await client.connect(transport);
  return {
    protocol: client.getNegotiatedProtocolVersion(),
    instructions: client.getInstructions(),
    tools: async (options) => (await client.listTools(undefined, options)).tools,
    resources: async (options) => (await client.listResources(undefined, options)).resources,
    prompts: async (options) => (await client.listPrompts(undefined, options)).prompts,
    call: (params, options) => client.callTool(params, options),
    read: (params, options) => client.readResource(params, options),
    prompt: (params, options) => client.getPrompt(params, options),
    close: () => client.close(),
  };
}
