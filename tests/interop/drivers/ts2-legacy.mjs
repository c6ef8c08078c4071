// Driver for the same client with its default options, under which it opens with the handshake.
import { drive } from './steps.mjs';
import { connect } from './ts2-client.mjs';

await drive(() => connect({}));
