// Driver for the TypeScript client of the second generation, `@modelcontextprotocol/client` 2.x, which
// negotiates the modern era only when asked to. Here it is asked to.
import { drive } from './steps.mjs';
import { connect } from './ts2-client.mjs';

await drive(() => connect({ versionNegotiation: { mode: 'auto' } }));
