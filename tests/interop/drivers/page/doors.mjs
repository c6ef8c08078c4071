// The ways in and out, and forms from elsewhere.
import http from 'node:http';
import { equal, expect, has, until } from './stage.mjs';

const SIGN_IN = 'main button';

async function asked(page) {
  await page.waitForSelector('#token');
}

async function token(page, selector = 'input[name=form]') {
  return page.locator(selector).first().getAttribute('value');
}

// A page of somebody else: on this machine, at another port.
async function stranger(stage, body) {
  const server = http.createServer((_, answer) => answer.writeHead(200, { 'content-type': 'text/html' }).end(body));
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  stage.stranger = `http://127.0.0.1:${server.address().port}`;
  return server;
}

export const doors = {
  async 'a wrong token signs nobody in'(stage) {
    const page = await (await stage.context()).newPage();
    await page.goto(`${stage.admin}/login`);
    await page.fill('#token', 'pcl_admin_wrong');
    const [answer] = await Promise.all([page.waitForResponse((answer) => answer.request().method() === 'POST'), page.click(SIGN_IN)]);
    equal(answer.status(), 401, 'status');
    has(await page.textContent('[role=alert]'), 'no token that counts', 'what it says');
    equal(await stage.cookie(page), undefined, 'the cookie');
    await page.goto(stage.admin);
    await asked(page);
    await stage.shot(page, 'sign-in');
  },

  async 'a token signs in, and no parameter says where to'(stage) {
    const page = await (await stage.context()).newPage();
    await stage.enter(page, 'dana', '/login?next=//evil.example&return_to=https://evil.example/');
    equal(page.url(), `${stage.admin}/`, 'where it leads');
    has(await page.textContent('.name'), 'dana', 'who it is');
    const { httpOnly, secure, sameSite, path, domain } = await stage.cookie(page);
    equal({ httpOnly, secure, sameSite, path }, { httpOnly: true, secure: true, sameSite: 'Lax', path: '/' }, `the cookie of ${domain}`);
    for (const path of ['/?next=//evil.example', '/login/check?next=//evil.example', '/history?next=//evil.example']) {
      await page.goto(stage.admin + path);
      equal(new URL(page.url()).origin, stage.admin, path);
    }
  },

  async 'a link signs in once, and looking at it uses nothing up'(stage) {
    const { status, body } = await stage.api('POST', '/v1/login-links', undefined, 'dana');
    equal(status, 201, 'a link');
    const url = stage.admin + new URL(body.url).pathname + new URL(body.url).search;
    const page = await (await stage.context()).newPage();
    await page.goto(url);
    await page.reload();
    await stage.shot(page, 'sign-in-by-link');
    await page.click(SIGN_IN);
    await page.waitForSelector('.panes');
    has(await page.textContent('.name'), 'dana', 'who it is');
    const other = await (await stage.context()).newPage();
    await other.goto(url);
    await other.click(SIGN_IN);
    has(await other.textContent('[role=alert]'), 'used before', 'the second use');
    equal(await stage.cookie(other), undefined, 'the cookie of the second use');
  },

  async 'who is sent to a call gets there by signing in'(stage) {
    const { card } = await stage.refund(10);
    const page = await (await stage.context()).newPage();
    await page.goto(`${stage.admin}/approve/${card.id}`);
    has(await page.textContent('h1'), 'waits for your approval', 'the title');
    equal(await page.locator('text=refund').count(), 0, 'what strangers see of it');
    await stage.enter(page, 'dana', `/approve/${card.id}`);
    equal(page.url(), `${stage.admin}/approve/${card.id}`, 'where it leads');
    has(await page.textContent('.card h1'), 'refund', 'the call');
  },

  async 'signing out ends the session for good'(stage) {
    const page = await stage.signIn('dana');
    await page.goto(stage.admin);
    const cookie = await stage.cookie(page);
    await page.click('.who form button');
    await asked(page);
    equal(await stage.cookie(page), undefined, 'the cookie');
    await page.context().addCookies([cookie]);
    await page.goto(stage.admin);
    await asked(page);
    const { status } = await fetch(`${stage.admin}/live`, { headers: { cookie: `__Host-portcullis=${cookie.value}` } });
    equal(status, 401, 'the old cookie at the events');
  },

  async 'the end of a token ends its session, and the page says so by itself'(stage) {
    const name = `tom${Date.now()}`;
    const { body } = await stage.api('POST', '/v1/tokens', { admin: name, role: 'approver' });
    const page = await stage.signIn(body.token);
    await page.goto(stage.admin);
    await until(() => page.evaluate(() => document.body.classList.contains('scripted')), 'the script runs');
    equal((await stage.api('DELETE', `/v1/tokens/${body.id}`)).status, 200, 'revoked');
    await asked(page);
    await page.goto(`${stage.admin}/history`);
    await asked(page);
  },

  async 'X01 only a form of this page, in this session, changes anything'(stage) {
    const { card } = await stage.refund(20);
    const page = await stage.at('dana', `/approve/${card.id}`);
    const [own, cookie] = [await token(page), (await stage.cookie(page)).value];
    const other = await token(await stage.at('erik'));
    const path = `/approve/${card.id}`;
    const fields = { action: 'approve', digest: card.digest };
    const forms = [
      ['without a token', path, fields, {}],
      ['with an empty token', path, { ...fields, form: '' }, {}],
      ['with a token of another session', path, { ...fields, form: other }, {}],
      ['with two tokens', path, [...Object.entries(fields), ['form', own], ['form', own]], {}],
      ['from a foreign page', path, { ...fields, form: own }, { origin: 'http://evil.example' }],
      ['from another port', path, { ...fields, form: own }, { origin: 'http://127.0.0.1:9' }],
      ['from nowhere', path, { ...fields, form: own }, { origin: 'null' }],
      ['in a batch without a token', '/decide', { action: 'approve', pick: `${card.id}/${card.digest}` }, {}],
      ['that signs out', '/logout', {}, {}],
      ['that signs in', '/login', { token: stage.tokens.dana }, { origin: 'http://evil.example' }],
    ];
    for (const [what, path, fields, headers] of forms) {
      const answer = await stage.post(path, cookie, fields, headers);
      equal(answer.status, what === 'with two tokens' ? 400 : 403, `a form ${what}`);
      equal(answer.headers.get('set-cookie'), null, `a cookie for a form ${what}`);
    }
    const raw = { method: 'POST', headers: { cookie: `__Host-portcullis=${cookie}` }, body: new URLSearchParams({ ...fields, form: own }) };
    equal((await fetch(stage.admin + path, raw)).status, 403, 'a form without an origin');
    const json = await stage.post(path, cookie, {}, { 'content-type': 'application/json' });
    equal(json.status, 415, 'a form that is JSON');
    equal((await fetch(`${stage.admin}/v1/approvals`, { headers: raw.headers })).status, 401, 'the API with a cookie');
    for (const way of [{ method: 'PUT' }, { method: 'DELETE' }, { headers: { 'x-http-method-override': 'POST' } }]) {
      const headers = { ...raw.headers, ...way.headers };
      await fetch(`${stage.admin}${path}?action=approve&digest=${card.digest}&form=${own}`, { ...way, headers });
    }
    equal((await stage.card(card.id)).state, 'parked', 'the call');
    await page.reload();
    has(await page.textContent('.name'), 'dana', 'the session after all that');
  },

  async 'X01 X03 a foreign page can neither send a form nor frame a page'(stage) {
    const { card } = await stage.refund(30);
    const fields = Object.entries({ action: 'approve', digest: card.digest, form: 'x' }).map(([name, value]) => `<input name="${name}" value="${value}">`);
    const form = `<form method="post" action="${stage.admin}/approve/${card.id}">${fields.join('')}</form><script>document.forms[0].submit()</script>`;
    const page = await stage.at('dana');
    const server = await stranger(stage, form);
    const [answer] = await Promise.all([page.waitForResponse((answer) => answer.request().method() === 'POST'), page.goto(stage.stranger)]);
    equal(answer.status(), 403, 'the form');
    server.close();
    const frames = await stranger(stage, `<iframe src="${stage.admin}/"></iframe><iframe src="${stage.admin}/login"></iframe>`);
    await page.goto(stage.stranger);
    const inside = page.frames().slice(1);
    equal(inside.length, 2, 'frames');
    for (const frame of inside) equal(await frame.locator('main').count(), 0, `a frame shows ${frame.url()}`);
    frames.close();
    // The browser says in its console that it refused.
    stage.faults = stage.faults.filter((fault) => !fault.includes('frame-ancestors'));
    equal((await stage.card(card.id)).state, 'parked', 'the call');
  },

  async 'X03 X08 every answer is for this reader alone and in no frame'(stage) {
    const { card } = await stage.refund(40);
    const page = await stage.at('dana');
    const cookie = (await stage.cookie(page)).value;
    const form = await token(page);
    const get = (path, session) => fetch(stage.admin + path, { redirect: 'manual', headers: session ? { cookie: `__Host-portcullis=${session}` } : {} });
    const answers = [
      ...['/', '/login', '/login?code=x', '/login/check', '/page.css', '/page.js', '/history', '/standing', '/live', `/approve/${card.id}`].map((path) => [path, get(path)]),
      ...['/', '/?text=x', '/history', '/history?cursor=x', '/standing', '/live', `/approve/${card.id}`, '/approve/apr_nothing', '/approve/%3Cscript%3E', '/login/check'].map((path) => [`${path} signed in`, get(path, cookie)]),
      ['a form', stage.post(`/approve/${card.id}`, cookie, { form, action: 'reveal' })],
      ['a forged form', stage.post(`/approve/${card.id}`, cookie, {})],
      ['a batch', stage.post('/decide', cookie, { form, action: 'review', pick: `${card.id}/${card.digest}` })],
      ['a method', fetch(`${stage.admin}/history`, { method: 'PUT', headers: { cookie: `__Host-portcullis=${cookie}`, origin: stage.admin } })],
    ];
    for (const [what, answer] of answers) {
      const { status, headers, body } = await answer;
      const one = (name) => headers.get(name) ?? '';
      equal(one('cache-control'), 'no-store', `${what} (${status}): cache-control`);
      equal(one('x-content-type-options'), 'nosniff', `${what}: x-content-type-options`);
      for (const part of ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "script-src 'self'", "form-action 'self'"]) has(one('content-security-policy'), part, what);
      expect(!one('content-security-policy').includes('unsafe'), `${what}: unsafe`);
      equal(one('access-control-allow-origin'), '', `${what}: other origins`);
      await body?.cancel();
    }
    equal((await stage.card(card.id)).state, 'parked', 'the call');
  },

  async 'a viewer sees and decides nothing'(stage) {
    const { card } = await stage.refund(50);
    const secret = await stage.park('support', 'vault__sign_in', { user: 'ann', password: 'open sesame' });
    const page = await stage.at('viewer', `/approve/${card.id}`);
    has(await page.textContent('.sheet'), '50', 'the arguments');
    equal(await page.locator('.card form, .card button').count(), 0, 'forms in the card');
    await stage.shot(page, 'viewer');
    await stage.open(page, secret.card);
    has(await page.textContent('.arguments'), 'Not shown', 'secret arguments');
    expect(!(await page.content()).includes('sesame'), 'a secret in the page of a viewer');
    const [form, cookie] = [await token(page), (await stage.cookie(page)).value];
    for (const action of ['approve', 'deny', 'review', 'reveal', 'approve-edited']) {
      const answer = await stage.post(`/approve/${card.id}`, cookie, { form, action, digest: card.digest, arguments: '{"amount":1}' });
      equal(answer.status, 403, `a viewer's ${action}`);
    }
    for (const action of ['review', 'approve', 'deny']) {
      equal((await stage.post('/decide', cookie, { form, action, pick: `${card.id}/${card.digest}` })).status, 403, `a viewer's batch: ${action}`);
    }
    equal((await stage.post('/standing/grant_nothing/end', cookie, { form })).status, 403, 'a viewer ends what stands');
    equal((await stage.card(card.id)).state, 'parked', 'the call');
  },
};
