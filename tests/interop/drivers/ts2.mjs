// Driver for the TypeScript client of the second generation, `@modelcontextprotocol/client` 2.x, which
// negotiates the modern era only when asked to. Its list calls walk all pages by themselves.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { drive, target } from './steps.mjs';

await drive(async () => {
  const { url, headers } = target();
  const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
  const client = new Client(
    { name: 'portcullis-interop-ts2', version: '1.0.0' },
    { versionNegotiation: { mode: 'auto' } },
  );
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
});
