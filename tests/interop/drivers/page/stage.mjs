// Who acts: agents that call, approvers with a browser each, and the admin API to compare with.
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

const PATIENCE_MS = 20_000;
const REVISION = '2026-07-28';

export function expect(true_, what) {
  if (!true_) throw new Error(what);
}

export function equal(actual, expected, what) {
  const [a, e] = [actual, expected].map((value) => JSON.stringify(value));
  if (a !== e) throw new Error(`${what}: ${a} instead of ${e}`);
}

export function has(text, part, what) {
  if (!String(text).includes(part)) throw new Error(`${what}: no ${JSON.stringify(part)} in ${JSON.stringify(text)}`);
}

// Waits until `look` gives something.
export async function until(look, what) {
  const limit = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > limit) throw new Error(`in vain: ${what}`);
    await new Promise((wake) => setTimeout(wake, 25));
  }
}

export class Stage {
  constructor(settings, browser) {
    Object.assign(this, settings);
    this.browser = browser;
    this.contexts = [];
    // What no page may ever do.
    this.faults = [];
    this.calls = 0;
    this.kept = {};
    if (this.shots) mkdirSync(this.shots, { recursive: true });
  }

  async api(method, path, body, who = 'operator') {
    const headers = { authorization: `Bearer ${this.tokens[who] ?? who}` };
    if (body) headers['content-type'] = 'application/json';
    const answer = await fetch(this.admin + path, { method, headers, body: body && JSON.stringify(body) });
    const text = await answer.text();
    try {
      return { status: answer.status, body: JSON.parse(text) };
    } catch {
      return { status: answer.status, body: text };
    }
  }

  async parked() {
    return (await this.api('GET', '/v1/approvals?state=parked')).body.items;
  }

  async card(id) {
    return (await this.api('GET', `/v1/approvals/${id}`)).body;
  }

  async state(id, state) {
    return until(async () => {
      const card = await this.card(id);
      return card.state === state && card;
    }, `${id} becomes ${state}`);
  }

  decide(card, decision, more = {}, who = 'erik') {
    const body = { decision, digest: card.digest, ...more };
    return this.api('POST', `/v1/approvals/${card.id}/decision`, body, who);
  }

  // The answer of a call: its text, and whether it is an error. `args` is JSON text or a value.
  async call(agent, tool, args, signal) {
    const to = typeof agent === 'string' ? { url: `${this.agents}/a/${agent}/mcp`, token: this.agentTokens[agent] } : agent;
    const meta = { [`io.modelcontextprotocol/protocolVersion`]: REVISION, 'io.modelcontextprotocol/clientCapabilities': {} };
    const raw = typeof args === 'string' ? args : JSON.stringify(args);
    const answer = await fetch(to.url, {
      method: 'POST',
      signal,
      headers: {
        authorization: `Bearer ${to.token}`,
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        'mcp-protocol-version': REVISION,
        'mcp-method': 'tools/call',
        'mcp-name': tool,
      },
      body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":${JSON.stringify(tool)},"arguments":${raw},"_meta":${JSON.stringify(meta)}}}`,
    });
    const messages = (await answer.text()).split('\n').map((line) => line.replace(/^data: /, ''));
    const last = messages.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line)).findLast((one) => one.id === 1);
    const content = last?.result?.content ?? [{ text: JSON.stringify(last ?? null) }];
    return { error: !last?.result?.content || last.result.isError === true, text: content.map((block) => block.text).join('\n') };
  }

  // Calls and waits until the call is parked: its card, and the answer to come.
  async park(agent, tool, args, signal) {
    const known = new Set((await this.parked()).map((card) => card.id));
    const answer = this.call(agent, tool, args, signal);
    // A gateway that is stopped breaks it off.
    answer.catch(() => {});
    const early = answer.then((said) => ({ said }), (error) => ({ said: error.message }));
    const card = await until(async () => {
      const card = (await this.parked()).find((card) => !known.has(card.id));
      const ended = card || (await Promise.race([early, Promise.resolve(null)]));
      if (ended?.said) throw new Error(`${tool} was answered at once: ${JSON.stringify(ended.said)}`);
      return ended;
    }, `${tool} is parked`);
    return { card, answer };
  }

  refund(amount, more = {}, agent = 'support') {
    return this.park(agent, 'crm__refund', { amount, order: `o-${++this.calls}`, ...more });
  }

  // A run of `agent`, below another one if that is given.
  async run(agent, parent) {
    const { status, body } = await this.api('POST', '/v1/runs', { agent, ttl: '30m', ...(parent && { parent: parent.run }) });
    equal(status, 201, `a run of ${agent}: ${JSON.stringify(body)}`);
    return body;
  }

  async context(options = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1366, height: 860 }, ...options });
    context.setDefaultTimeout(PATIENCE_MS);
    this.contexts.push(context);
    context.on('request', (request) => {
      const url = new URL(request.url());
      const own = [this.admin, this.stranger].includes(url.origin) || url.protocol === 'data:';
      if (!own) this.faults.push(`asked ${url.href}`);
    });
    context.on('dialog', (dialog) => {
      this.faults.push(`a dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    context.on('weberror', ({ error }) => void this.faults.push(`an error in a page: ${error()}`));
    context.on('console', (message) => {
      // That a page answers with 4xx is written there too.
      const loud = ['error', 'warning'].includes(message.type());
      if (loud && !message.text().startsWith('Failed to load resource')) this.faults.push(`console: ${message.text()}`);
    });
    return context;
  }

  // A page of somebody who is signed in, in a session of their own.
  async signIn(who, options) {
    const context = await this.context(options);
    const form = { token: this.tokens[who] ?? who };
    const answer = await this.post('/login', '', form);
    const value = /^__Host-portcullis=([^;]+);/.exec(answer.headers.get('set-cookie') ?? '')?.[1];
    expect(value, `${who} is not signed in: ${answer.status}`);
    const { hostname: domain } = new URL(this.admin);
    await context.addCookies([{ name: '__Host-portcullis', value, domain, path: '/', secure: true, httpOnly: true, sameSite: 'Lax' }]);
    return context.newPage();
  }

  async enter(page, who, path = '/login') {
    await page.goto(this.admin + path);
    await page.fill('#token', this.tokens[who] ?? who);
    await Promise.all([page.waitForURL((url) => !url.pathname.startsWith('/login')), page.click('main button')]);
  }

  // The page of an approver or viewer that later checks use too.
  async at(who, path = '/') {
    this.kept[who] ??= await this.signIn(who);
    await this.kept[who].goto(this.admin + path);
    return this.kept[who];
  }

  open(page, card) {
    return page.goto(`${this.admin}/approve/${card.id}`);
  }

  async cookie(page) {
    return (await page.context().cookies()).find((cookie) => cookie.name === '__Host-portcullis');
  }

  // A request of a browser with that cookie, but not one that its page would make.
  post(path, cookie, fields, headers = {}) {
    return fetch(this.admin + path, {
      method: 'POST',
      redirect: 'manual',
      headers: { origin: this.admin, cookie: `__Host-portcullis=${cookie}`, 'content-type': 'application/x-www-form-urlencoded', ...headers },
      body: new URLSearchParams(fields).toString(),
    });
  }

  async clear() {
    equal(this.faults, [], 'what no page may do');
    const kept = Object.values(this.kept);
    const contexts = kept.map((page) => page.context());
    for (const page of this.contexts.flatMap((context) => context.pages())) {
      if (!kept.includes(page)) await page.close();
    }
    await Promise.all(this.contexts.filter((context) => !contexts.includes(context)).map((context) => context.close()));
    this.contexts = contexts;
    for (const card of await this.parked()) await this.decide(card, 'deny', {}, 'operator');
    for (const grant of (await this.api('GET', '/v1/grants')).body.items) await this.api('DELETE', `/v1/grants/${grant.id}`);
  }

  async shot(page, name) {
    if (this.shots) await page.screenshot({ path: join(this.shots, `${name}.png`) });
  }

  // What stood there when a check failed.
  async picture(name) {
    const pages = this.contexts.flatMap((context) => context.pages());
    const file = name.replace(/\W+/g, '-');
    for (const [at, page] of pages.entries()) await this.shot(page, `failed-${file}-${at}`).catch(() => {});
    if (this.faults.length) console.error(`faults: ${this.faults.join('; ')}`);
  }

  async restart() {
    console.log('restart');
    process.stdin.resume();
    await once(process.stdin, 'data');
    process.stdin.pause();
  }
}
