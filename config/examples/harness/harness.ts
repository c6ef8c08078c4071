// A complete harness for a Portcullis gateway in one file: take from it what yours needs.
//
// It starts a run of an agent, hands the run to a subagent, shows each call that asks, sends the decision
// and stops the run. The subagent here is a stand-in: it makes one call that asks, as a model would.
//
//     export PORTCULLIS_HARNESS_TOKEN=pcl_admin_…
//     node harness.ts                                              # asks you
//     node harness.ts --decide deny --reason "not this customer"
import { createHash } from 'node:crypto';
import { createInterface } from 'node:readline/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { type CallToolResult, Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const ADMIN = (process.env.PORTCULLIS_ADMIN_URL || 'http://127.0.0.1:7778').replace(/\/+$/, '');
const TOKEN = process.env.PORTCULLIS_HARNESS_TOKEN?.trim();
const NARROW = { tools: [{ server: 'crm', allow: ['get_customer', 'refund'] }] };
const TOOL = 'crm__refund';
// The reason ends in a character that nobody sees, except on the card.
const ARGUMENTS = { order: 'o-5001', amount: 1.5, reason: 'one day late\u200b' };
const SILENT_MS_MAX = 30_000; // a gateway that holds a call or a stream says something every 15 seconds
const TRIES = 30; // a second apart: a gateway may be started again meanwhile

type Run = {
  run: string; agent: string; url: string; token: string; expires: string;
  tools: { name: string; approval: 'auto' | 'asks' }[];
  missing: { server: string; tool: string | null; why: string; declared: string }[];
  diagnostics: { severity: string; message: string; file: string | null }[];
};
type Card = {
  id: string; state: string; agent: string; run: string; parents: { agent: string; run: string }[];
  server: string; tool: string; rule: string; arguments: string | null; digest: string | null; deadline: string | null;
  title: string | null; claims: Record<string, boolean | null> | null; outcome: string | null;
  needed: number; votes: object[];
  decision: { decision: string; by: string; reason: string | null } | null;
};
type Options = { agent: string; decide?: string; reason?: string };

/** Why the harness did not reach its end, for a person; with the status of a refusal. */
class Failed extends Error {
  status: number;
  answer: any;
  constructor(message: string, status = 0, answer?: any) {
    super(message);
    this.status = status;
    this.answer = answer;
  }
}

const interrupted = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => interrupted.abort());

/** The answer to a request. All but the start of a run may be sent again: it does no more then. */
async function ask(method: string, path: string, body?: object, tries = 1): Promise<any> {
  try {
    const signal = AbortSignal.timeout(SILENT_MS_MAX);
    const response = await send(method, path, { signal, body: JSON.stringify(body) });
    return await response.json();
  } catch (error) {
    const refused = error instanceof Failed && error.status > 0;
    if (refused || tries === 1 || (interrupted.signal.aborted && method !== 'DELETE')) throw error;
  }
  await sleep(1000);
  return ask(method, path, body, tries - 1);
}

async function send(method: string, path: string, { headers, ...more }: RequestInit): Promise<Response> {
  const own = { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json', ...headers };
  const response = await fetch(ADMIN + path, { method, headers: own, ...more }).catch((error) => {
    throw new Failed(`no gateway answers at ${ADMIN}: ${why(error)}`);
  });
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const message = `the gateway refused (${response.status}): ${answer.error?.message ?? 'too late'}`;
  throw new Failed(message, response.status, answer);
}

/** What stands, then what happens; after a broken connection goes on where it was. */
async function* events(): AsyncGenerator<[kind: string, event: any]> {
  let place = '';
  for (let broken = 0; ; await sleep(1000, undefined, { signal: interrupted.signal })) {
    const silence = new AbortController();
    try {
      const headers: HeadersInit = place ? { 'Last-Event-ID': place } : {};
      const signal = AbortSignal.any([interrupted.signal, silence.signal]);
      const response = await send('GET', '/v1/events', { headers, signal });
      for await (const { id, event, data } of serverSentEvents(response.body!, silence)) {
        broken = 0;
        place = id ?? place;
        if (data) yield [event, JSON.parse(data)];
      }
    } catch (error) {
      interrupted.signal.throwIfAborted();
      const status = error instanceof Failed ? error.status : 0;
      broken += 1;
      if (status === 400 && place) place = ''; // too old by now: begin again with what stands
      else if ((status > 0 && status < 500) || broken === TRIES) throw error;
    }
  }
}

/** One without data only says where the stream is. */
async function* serverSentEvents(body: ReadableStream<BufferSource>, silence: AbortController) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ; ) {
    const timer = setTimeout(() => silence.abort(), SILENT_MS_MAX);
    const { value, done } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop()!;
    for (const block of blocks) {
      const event: { id?: string; event: string; data: string } = { event: 'message', data: '' };
      for (const line of block.split('\n')) {
        const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line)!;
        if (name === 'id' || name === 'event') event[name] = value;
        if (name === 'data') event.data += value;
      }
      yield event;
    }
  }
}

/** Step 1: a run, which ends with `work`, whatever happens in it. */
async function withRun(agent: string, work: (run: Run) => Promise<void>): Promise<void> {
  const run: Run = await ask('POST', '/v1/runs', { agent, ttl: '15m', narrow: NARROW });
  try {
    row('run', `${run.run} of ${run.agent}, until ${run.expires}`);
    row('url', run.url);
    row('tools', run.tools.map((tool) => `${tool.name} (${tool.approval})`).join(', ') || 'none');
    for (const gone of run.missing) {
      row('missing', `${gone.server} ${gone.tool ?? ''}: ${gone.why} (declared at ${gone.declared})`);
    }
    for (const said of run.diagnostics) row(said.severity, `${said.message} (${said.file})`);
    await work(run);
  } finally {
    await ask('DELETE', `/v1/runs/${run.run}?why=its+harness+ended+it`, undefined, 5).then(
      (ended) => row('stopped', `${run.run}; calls that still waited and are denied: ${ended.settled.length}`),
      (error) => row('not stopped', `${run.run}: ${why(error)}; it ends by itself at ${run.expires}`),
    );
  }
}

/**
 * Step 2: an agent has the URL and the token of its run, and nothing else. No time limit of its own: its call
 * is held until somebody decides, and denied when nobody does in time or the run ends.
 */
async function subagent({ url, token }: Run): Promise<CallToolResult> {
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  // What shows that a held call is alive starts the timer anew.
  const held = { timeout: SILENT_MS_MAX, resetTimeoutOnProgress: true, onprogress: () => {} };
  for (let broken = 0; ; await sleep(1000)) {
    const client = new Client({ name: 'support-stand-in', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
    try {
      await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
      const result = await client.callTool({ name: TOOL, arguments: ARGUMENTS }, held);
      // "undisclosed": it did not run yet, and the gateway could not hold it any longer.
      const authorization: any = result._meta?.['io.modelcontextprotocol/authorization'];
      if (authorization?.remediation !== 'undisclosed') return result;
    } catch (error) {
      broken += 1;
      if (broken === TRIES) throw new Failed(`the subagent lost the gateway: ${why(error)}`);
    } finally {
      await client.close().catch(() => {});
    }
    // The identical call joins the card that is there: nobody is asked twice, nothing runs twice.
  }
}

/** Step 3: the ids of the cards of `run` that wait, each once. */
async function* parkedCards(run: string): AsyncGenerator<string, never> {
  const seen = new Set<string>();
  for await (const [kind, event] of events()) {
    const cards: Card[] = kind === 'snapshot' ? event.approvals : kind === 'card' ? [event] : [];
    for (const card of cards) {
      if (card.run !== run || card.state !== 'parked' || seen.has(card.id)) continue;
      seen.add(card.id);
      yield card.id;
    }
  }
  throw new Failed('the events ended');
}

/** All that would run, and nothing hidden. */
function show(card: Card): void {
  row('approval', `${card.id}, to be decided until ${card.deadline}`);
  row('agent', [card, ...card.parents].map(({ agent, run }) => `${agent} in ${run}`).join(' below '));
  row('server', card.server);
  row('tool', card.tool);
  row('rule', card.rule);
  row('arguments', card.arguments ?? 'left out for this token');
  row('digest', card.digest ?? 'left out with them');
  const said = Object.entries(card.claims ?? {}).filter(([, value]) => value !== null);
  const claims = said.map(([name, value]) => `${name}: ${value}`).join(', ');
  row('claims', `"${card.title}", ${claims} (the words of the server)`);
}

function row(name: string, text: string): void {
  console.log(name.padEnd(12) + plain(text));
}

/** With an escape for each character that hides, moves or changes others. */
function plain(text: string): string {
  const hidden = /(?! )[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/gu;
  return text.replace(hidden, (c) => `\\u{${c.codePointAt(0)!.toString(16)}}`);
}

/** Step 4: a decision about one card as it was shown. */
async function decide(approval: string, options: Options): Promise<void> {
  const card: Card = await ask('GET', `/v1/approvals/${approval}`, undefined, TRIES);
  if (card.state !== 'parked') return;
  show(card);
  const [decision, reason] = options.decide ? [options.decide, options.reason] : await askedAtTerminal();
  const shown = `sha256:${createHash('sha256').update(card.arguments ?? '').digest('hex')}`;
  if (decision === 'approve' && shown !== card.digest) {
    throw new Failed('the digest is not that of the arguments shown, so nothing was approved');
  }
  const body = { decision, digest: card.digest, reason: reason || undefined };
  try {
    row('decided', fate(await ask('POST', `/v1/approvals/${approval}/decision`, body, TRIES)));
  } catch (error) {
    if (!(error instanceof Failed) || error.status !== 409) throw error;
    row('too late', `something else came first: ${fate(error.answer)}`);
  }
}

async function askedAtTerminal(): Promise<[decision: string, reason: string]> {
  // Not `terminal: true`, under which Ctrl-C would be a key and no signal.
  const terminal = createInterface({ input: process.stdin, output: process.stdout, terminal: false });
  const closed = new AbortController();
  terminal.once('close', () => closed.abort());
  const signal = AbortSignal.any([interrupted.signal, closed.signal]);
  try {
    for (;;) {
      const line = await terminal.question('May it run, once, as shown? y, or n and why: ', { signal });
      const [, word, reason] = /^\s*(\w*)\s*(.*?)\s*$/.exec(line)!;
      if (/^y(es)?$/.test(word) && !reason) return ['approve', ''];
      if (/^no?$/.test(word)) return ['deny', reason];
    }
  } catch {
    throw new Failed('nobody decided');
  } finally {
    terminal.close();
  }
}

/** What became of a card, and who said so. */
function fate({ id, state, outcome, votes, needed, decision }: Card): string {
  let text = `${id} is ${state}` + (outcome ? ` (${outcome})` : '');
  if (state === 'parked') text += ` with ${votes.length} of ${needed} approvals`;
  if (decision) text += `; ${decision.by} said ${decision.decision}` + (decision.reason ? `: ${decision.reason}` : '');
  return text;
}

/** What happens between the start of the run and its end. */
async function work(run: Run, options: Options): Promise<void> {
  const answer = subagent(run).then((result) => ({ result }));
  const cards = parkedCards(run.run);
  let news = await Promise.race([answer, cards.next()]);
  while (!('result' in news)) {
    await decide(news.value, options);
    news = await Promise.race([answer, cards.next()]);
  }
  // Step 5. The list is the truth: it also has what was never heard of as an event.
  row('returned', news.result.content.map((block) => (block.type === 'text' ? block.text : '')).join('\n'));
  const asked: Card[] = (await ask('GET', `/v1/approvals?run=${run.run}`, undefined, TRIES)).items;
  for (const card of asked) row('ended', fate(card));
  if (asked.length === 0) throw new Failed('the call ended without asking anybody');
  const ran = (card: Card) => ['ok', 'tool_error', 'rpc_error'].includes(card.outcome ?? '');
  if (!asked.every((card) => card.state === 'denied' || ran(card))) throw new Failed('the call did not end as somebody decided');
}

function why(error: any): string {
  return error.cause?.message || error.cause?.code || error.message || String(error);
}

function commandLine(): Options {
  const text = { type: 'string' } as const;
  const { values } = parseArgs({ options: { agent: { ...text, default: 'support' }, decide: text, reason: text } });
  if (!TOKEN) throw new Error('PORTCULLIS_HARNESS_TOKEN is not set');
  if (!/^(approve|deny)?$/.test(values.decide ?? '')) throw new Error('--decide is approve or deny');
  if (!values.decide && !process.stdin.isTTY) throw new Error('no terminal to ask at; give --decide');
  return values;
}

let status = 2; // wrong usage, until that is known to be right
try {
  const options = commandLine();
  status = 1;
  await withRun(options.agent, (run) => work(run, options));
  status = 0;
} catch (error) {
  if (!interrupted.signal.aborted) console.error(`harness: ${plain(why(error))}`);
}
process.exit(interrupted.signal.aborted ? 130 : status);
