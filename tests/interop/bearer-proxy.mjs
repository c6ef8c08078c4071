// A loopback forwarder that adds a bearer token to every request: bearer-proxy.mjs URL TOKEN [PORT]
//
// The conformance suite cannot send headers of its own. Everything but the added line passes byte for
// byte, Host and Origin too, so checks for DNS rebinding mean what they mean without it; answers and
// event streams are piped as they come, and either side's hang-up reaches the other. A request that has
// an Authorization header keeps its own. Prints the port it listens on (PORT 0 or none: a free one).
import { connect, createServer } from 'node:net';

const HEAD_BYTES_MAX = 1 << 20;

const [url, token, port = '0'] = process.argv.slice(2);
if (!url || !token || !URL.canParse(url) || new URL(url).protocol !== 'http:') {
  console.error('usage: bearer-proxy.mjs http://HOST:PORT/… TOKEN [PORT]');
  process.exit(2);
}
const upstream = new URL(url);
const added = Buffer.from(`Authorization: Bearer ${token}\r\n`);

/** Follows the framing of the requests on one connection; yields the bytes to send on. */
class Requests {
  #held = Buffer.alloc(0);
  #state = 'head';
  #left = 0;

  /** Takes bytes as they arrive and returns those that may go on now. */
  take(bytes) {
    this.#held = Buffer.concat([this.#held, bytes]);
    const out = [];
    for (let part; (part = this.#next()); ) out.push(part);
    return Buffer.concat(out);
  }

  #next() {
    if (this.#held.length === 0) return null;
    switch (this.#state) {
      case 'head':
        return this.#head();
      case 'body':
      case 'chunk': {
        const part = this.#cut(Math.min(this.#left, this.#held.length));
        this.#left -= part.length;
        if (this.#left === 0) this.#state = this.#state === 'body' ? 'head' : 'size';
        return part;
      }
      case 'size': {
        const line = this.#line();
        if (!line) return null;
        const size = Number.parseInt(line.toString('latin1'), 16);
        if (Number.isNaN(size)) throw new Error('a chunk without a size');
        this.#left = size + 2;
        this.#state = size === 0 ? 'trailer' : 'chunk';
        return line;
      }
      case 'trailer': {
        const line = this.#line();
        if (line?.length === 2) this.#state = 'head';
        return line;
      }
    }
  }

  #head() {
    const end = this.#held.indexOf('\r\n\r\n');
    if (end < 0) {
      if (this.#held.length > HEAD_BYTES_MAX) throw new Error('a request head without an end');
      return null;
    }
    const head = this.#cut(end + 4);
    const text = head.toString('latin1');
    const length = /\r\ncontent-length:[ \t]*(\d+)/i.exec(text);
    if (/\r\ntransfer-encoding:[^\r]*chunked/i.test(text)) {
      this.#state = 'size';
    } else if (length && Number(length[1]) > 0) {
      this.#state = 'body';
      this.#left = Number(length[1]);
    }
    if (/\r\nauthorization:/i.test(text)) return head;
    const at = head.length - 2;
    return Buffer.concat([head.subarray(0, at), added, head.subarray(at)]);
  }

  #line() {
    const end = this.#held.indexOf('\r\n');
    return end < 0 ? null : this.#cut(end + 2);
  }

  #cut(count) {
    const part = this.#held.subarray(0, count);
    this.#held = this.#held.subarray(count);
    return part;
  }
}

const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
  const host = upstream.hostname.replace(/^\[|\]$/g, '');
  const peer = connect({ host, port: Number(upstream.port || 80), allowHalfOpen: true, noDelay: true });
  const requests = new Requests();
  client.on('data', (bytes) => {
    try {
      const part = requests.take(bytes);
      if (part.length && !peer.write(part)) {
        client.pause();
        peer.once('drain', () => client.resume());
      }
    } catch (error) {
      console.error(`bearer-proxy: ${error.message}`);
      client.destroy();
      peer.destroy();
    }
  });
  client.on('end', () => peer.end());
  peer.pipe(client);
  // A reset is passed on as a reset, so that a client that went away is seen to be gone.
  client.on('close', (broken) => (broken ? peer.resetAndDestroy() : undefined));
  peer.on('close', (broken) => (broken ? client.resetAndDestroy() : undefined));
  client.on('error', () => {});
  peer.on('error', () => {});
});

server.on('error', (error) => {
  console.error(`bearer-proxy: ${error.message}`);
  process.exit(1);
});
server.listen(Number(port), '127.0.0.1', () => console.log(server.address().port));
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(0));
