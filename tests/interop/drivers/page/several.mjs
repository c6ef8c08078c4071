// Several calls, several approvers, several tabs.
import { equal, expect, has, until } from './stage.mjs';

async function stands(page, state) {
  await page.locator(`#pane .card-head .state.${state}`).waitFor();
}

// A page that does not follow what happens.
async function deaf(stage, who, card) {
  const page = await stage.at(who);
  const other = await page.context().newPage();
  await other.route('**/page.js', (route) => route.abort());
  await stage.open(other, card);
  return other;
}

// Presses a button and waits for the answer to its form.
async function press(page, selector) {
  const posted = page.waitForResponse((answer) => answer.request().method() === 'POST');
  await page.click(selector);
  const answer = await posted;
  await page.waitForLoadState();
  return answer.status();
}

export const several = {
  async 'a batch has one result each, whatever happened meanwhile'(stage) {
    const calls = [];
    for (const amount of [11, 12, 13]) calls.push(await stage.refund(amount));
    const left = await stage.refund(14);
    const page = await stage.at('dana');
    for (const { card } of calls) await page.check(`[value^="${card.id}/"]`);
    await stage.shot(page, 'chosen');
    await Promise.all([page.waitForEvent('load'), page.click('.batch button')]);
    equal(await page.locator('.many').count(), 3, 'calls to review');
    has(await page.textContent('h1'), 'Decide 3 calls', 'the title');
    await stage.shot(page, 'batch');
    equal((await stage.decide(calls[1].card, 'deny', { reason: 'mine' })).status, 200, 'somebody else');
    equal(await press(page, '#approve'), 200, 'the batch');
    const results = await page.locator('.results li').allTextContents();
    equal(results.length, 3, 'results');
    equal(results.map((text) => text.replace(/^.* for support/s, '').trim()), ['approved', 'not changed: it is denied already', 'approved'], 'results');
    await stage.shot(page, 'batch-results');
    for (const at of [0, 2]) equal(JSON.parse((await calls[at].answer).text).amount, 11 + at, `answer ${at}`);
    has((await calls[1].answer).text, 'mine', 'the denied one');
    equal((await stage.card(left.card.id)).state, 'parked', 'the one that was not chosen');
    await page.click('#next');
    await page.waitForSelector(`#rows [data-key="${left.card.id}"]`);
  },

  async 'of two who decide at once, one wins and the other sees who'(stage) {
    const { card, answer } = await stage.refund(15);
    const [dana, erik] = [await deaf(stage, 'dana', card), await deaf(stage, 'erik', card)];
    const statuses = await Promise.all([press(dana, '#approve'), press(erik, '.no button')]);
    equal([...statuses].sort(), [303, 409], 'statuses');
    const [won, loser] = statuses[0] === 303 ? ['dana', erik] : ['erik', dana];
    has(await loser.textContent('.notice.bad'), 'Somebody else was first', 'what the other sees');
    has(await loser.textContent('.said'), won, 'who it was');
    const { error } = await answer;
    equal(error, won === 'erik', 'the answer');
    const settled = await stage.card(card.id);
    equal(settled.decision.by, won, 'who decided');
    await stage.shot(loser, 'somebody-else-was-first');
  },

  async 'X05 a page that is loaded twice decides once, from either'(stage) {
    for (const [first, second] of [[0, 1], [1, 0]]) {
      const { card, answer } = await stage.refund(16 + first);
      const tabs = [await deaf(stage, 'dana', card), await deaf(stage, 'dana', card)];
      const forms = await Promise.all(tabs.map((tab) => tab.locator('.yes [name=form]').getAttribute('value')));
      expect(forms[0] !== forms[1], 'one token for two pages');
      equal(await press(tabs[first], '#approve'), 303, `tab ${first}`);
      equal((await answer).error, false, 'the answer');
      equal(await press(tabs[second], '#approve'), 303, 'the same again');
      await stage.open(tabs[second], card);
      const late = await stage.post(`/approve/${card.id}`, (await stage.cookie(tabs[0])).value, { form: forms[second], action: 'deny', digest: card.digest });
      equal(late.status, 409, 'another decision');
      equal((await stage.card(card.id)).state, 'done', 'the outcome');
      await Promise.all(tabs.map((tab) => tab.close()));
    }
  },

  async 'where two have to approve, each sees the other'(stage) {
    const { card, answer } = await stage.refund(17, {}, 'other');
    const dana = await stage.at('dana', `/approve/${card.id}`);
    equal(await dana.locator('#standing').count(), 0, 'ways to let more pass');
    await dana.click('#approve');
    await dana.waitForSelector('.said');
    has(await dana.textContent('.card-head'), '1 of 2 approvals', 'how many are there');
    expect(await dana.isDisabled('#approve'), 'a second vote of the same person');
    has(await dana.textContent(`#rows [data-key="${card.id}"]`), '1 of 2, yours', 'the list');
    await stage.shot(dana, 'one-of-two');
    const erik = await stage.at('erik', `/approve/${card.id}`);
    has(await erik.textContent('.said'), 'dana', 'the first vote');
    await erik.click('#approve');
    equal(JSON.parse((await answer).text).amount, 17, 'the answer');
    await stands(dana, 'done');
    equal(await dana.locator('.said').count() > 0, true, 'who approved');
  },

  async 'what changes while it is read cannot be approved unread'(stage) {
    const { card, answer } = await stage.refund(300, {}, 'other');
    const dana = await stage.at('dana', `/approve/${card.id}`);
    const edited = JSON.parse(card.arguments);
    const { status } = await stage.decide(card, 'approve', { arguments: { ...edited, amount: 30 } }, 'erik');
    equal(status, 200, 'an edit by somebody else');
    await dana.waitForSelector('.changed');
    has(await dana.textContent('.changed'), 'changed while you read it', 'what it says');
    has(await dana.textContent('.sheet'), '300', 'what is shown');
    expect(await dana.isDisabled('#approve'), 'a way to approve it');
    await stage.shot(dana, 'changed-meanwhile');
    await dana.click('.changed a');
    await until(async () => (await dana.textContent('.sheet')).includes('30,'), 'what it is now');
    has(await dana.textContent('.arguments'), 'erik changed what the agent asked for', 'who changed it');
    await dana.click('#approve');
    equal(JSON.parse((await answer).text).amount, 30, 'what the tool received');
  },

  async 'a page comes back by itself after a restart, and misses nothing'(stage) {
    const before = await stage.refund(18);
    const page = await stage.at('dana', `/approve/${before.card.id}`);
    await until(() => page.evaluate(() => document.body.classList.contains('scripted')), 'the script runs');
    const lost = until(async () => (await page.locator('body.offline').count()) && (await page.textContent('.live')), 'the page says so');
    await page.fill('#reason', 'as it was');
    await stage.restart();
    has(await lost, 'Not connected', 'what it says');
    const { card, answer } = await stage.refund(19);
    await page.waitForSelector(`#rows [data-key="${card.id}"]`);
    equal(await page.locator('body.offline').count(), 0, 'the page is connected again');
    equal(await page.locator('#rows li').count(), 2, 'both wait');
    equal(await page.inputValue('#reason'), 'as it was', 'what was typed');
    await stage.open(page, card);
    await page.click('#approve');
    equal((await answer).error, false, 'the answer');
    await stands(page, 'done');
    stage.faults = stage.faults.filter((fault) => !fault.includes('ERR_') && !fault.includes('EventSource'));
  },
};
