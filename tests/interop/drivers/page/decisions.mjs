// One approver and one call: it shows up, and is approved, edited, denied or let pass for a while.
import { equal, expect, has, until } from './stage.mjs';

const pane = (page, selector) => page.locator(`#pane ${selector}`);

// The state of the call that is shown, once it is that one.
async function stands(page, state) {
  await pane(page, `.card-head .state.${state}`).waitFor();
}

async function row(page, card) {
  const row = page.locator(`#rows [data-key="${card.id}"]`);
  await row.waitFor();
  return row;
}

// Puts `text` into the editor and asks for a look at it.
async function edit(page, text) {
  if (!(await page.locator('.edit[open]').count())) await page.click('.edit summary');
  await page.fill('#edit', text);
  await Promise.all([page.waitForEvent('load'), page.click('.edit button')]);
}

export const decisions = {
  async 'a call shows up by itself, here and in another tab'(stage) {
    const page = await stage.at('dana');
    const other = await page.context().newPage();
    await other.goto(`${stage.admin}/history`);
    await page.evaluate(() => { window.loadedOnce = true; });
    has(await page.textContent('.empty'), 'Nothing waits', 'an empty list');
    equal(await page.title(), 'Waiting · Portcullis', 'its title');
    await stage.shot(page, 'empty');
    const first = await stage.refund(1);
    await row(page, first.card);
    await until(async () => (await page.title()).startsWith('(1) '), 'the title counts');
    await stands(page, 'parked');
    equal(await page.locator('.empty').count(), 0, 'what an empty list says');
    await stage.shot(page, 'one');
    await stage.refund(2);
    await until(async () => (await page.title()).startsWith('(2) '), 'the title counts on');
    await until(async () => (await other.textContent('[data-waiting]')) === '2', 'another tab counts');
    expect(await page.evaluate(() => window.loadedOnce), 'the page was loaded again');
    await stage.decide(first.card, 'deny', { reason: 'no' });
    await until(async () => (await page.title()).startsWith('(1) '), 'the title counts down');
    await stands(page, 'denied');
    has(await pane(page, '.said').textContent(), 'denied by erik', 'who it was');
  },

  async 'what is read stays, whatever comes first by now, and so does what is typed'(stage) {
    const { card } = await stage.park('support', 'crm__look', { query: 'a' });
    const page = await stage.at('dana');
    await row(page, card);
    await page.fill('#reason', 'because');
    await (await row(page, card)).locator('input').check();
    const { card: risky } = await stage.refund(3);
    await row(page, risky);
    equal(await page.locator('#rows .row').first().getAttribute('data-key'), risky.id, 'the riskiest is first');
    equal(await pane(page, '.card').getAttribute('data-key'), card.id, 'the call that is read');
    equal(await page.inputValue('#reason'), 'because', 'what is typed');
    expect(await (await row(page, card)).locator('input').isChecked(), 'what is chosen');
    await (await row(page, card)).locator('a').focus();
    const { card: third } = await stage.refund(3);
    await row(page, third);
    has(await page.evaluate(() => document.activeElement.href), card.id, 'the focus');
  },

  async 'what is typed stays when the call itself changes'(stage) {
    const caller = new AbortController();
    const { card } = await stage.park('support', 'crm__refund', { amount: 3, order: 'left' }, caller.signal);
    const page = await stage.at('dana', `/approve/${card.id}`);
    await page.selectOption('#standing', 'arguments/10m');
    await page.click('.edit summary');
    await page.fill('#edit', '{"amount": 2}');
    await page.fill('#reason', 'half a sentence');
    caller.abort();
    await page.waitForSelector('.note.warn');
    has(await page.textContent('.note.warn'), 'not waiting now', 'what it says');
    const kept = await Promise.all(['#standing', '#edit', '#reason'].map((field) => page.inputValue(field)));
    equal(kept, ['arguments/10m', '{"amount": 2}', 'half a sentence'], 'what was typed');
    expect(await page.locator('.edit[open]').count(), 'the editor is open');
    equal(await page.evaluate(() => document.activeElement.id), 'reason', 'the focus');
  },

  async 'an edit is checked, shown and run as it was shown'(stage) {
    const { card, answer } = await stage.refund(400, { reason: 'too much' });
    const page = await stage.at('dana', `/approve/${card.id}`);
    const asked = await page.inputValue('#edit');
    equal(JSON.parse(asked), JSON.parse(card.arguments), 'what is to be edited');
    await edit(page, asked.replace('400', '4000'));
    has(await page.textContent('.notice.bad'), '/amount', 'an amount above the schema');
    has(await page.inputValue('#edit'), '4000', 'what was typed is still there');
    await stage.shot(page, 'edit-refused');
    await edit(page, asked.replace('400', ''));
    has(await page.textContent('.notice.bad'), 'Nothing was decided', 'no JSON');
    await edit(page, asked);
    has(await page.textContent('.notice.bad'), 'Nothing is changed', 'no edit');
    await edit(page, asked.replace('400', '40'));
    equal(await page.locator('.draft tbody tr').count(), 1, 'changes');
    has(await page.textContent('.draft tbody'), 'amount', 'the change');
    equal([await page.textContent('.draft del'), await page.textContent('.draft ins')], ['400', '40'], 'before and after');
    equal(await page.locator('[value=approve]').count(), 0, 'ways to approve it unchanged');
    await stage.shot(page, 'edit-reviewed');
    equal((await stage.card(card.id)).state, 'parked', 'before it is approved');
    // What happens elsewhere does not take the edit away.
    const { card: other } = await stage.refund(4);
    await row(page, other);
    equal(await page.locator('.draft').count(), 1, 'the edit');
    await page.click('#approve');
    const { text, error } = await answer;
    equal([JSON.parse(text).amount, error], [40, false], 'what the tool received');
    await stands(page, 'done');
    has(await pane(page, '.arguments').textContent(), 'dana changed what the agent asked for', 'on record');
    await stage.shot(page, 'edited');
  },

  async 'a denial tells the agent why'(stage) {
    const { card, answer } = await stage.refund(5);
    const page = await stage.at('dana', `/approve/${card.id}`);
    await page.fill('#reason', 'Not without a photo.');
    await page.click('.no button');
    const { text, error } = await answer;
    equal(error, true, 'an error');
    has(text, 'Not without a photo.', 'what the agent reads');
    await stands(page, 'denied');
    has(await pane(page, '.said blockquote').textContent(), 'Not without a photo.', 'what the page says');
    await stage.shot(page, 'denied');
  },

  async 'an approval stands for ten minutes, and ends where it is listed'(stage) {
    const run = await stage.run('support');
    const args = { amount: 6, order: 'same' };
    const { card, answer } = await stage.park(run, 'crm__refund', args);
    const page = await stage.at('dana', `/approve/${card.id}`);
    await page.selectOption('#standing', { label: 'This exact call, for 10 minutes' });
    await page.click('#approve');
    equal((await answer).error, false, 'the first');
    equal(await stage.call(run, 'crm__refund', args), await answer, 'the second, unasked');
    await page.goto(`${stage.admin}/standing`);
    const line = page.locator('#rows tr');
    const said = await line.textContent();
    for (const part of ['crm · refund', 'this exact call', 'support', 'by dana', '9 min left']) has(said, part, 'the list');
    await stage.shot(page, 'standing');
    await line.locator('button').click();
    await page.waitForSelector('text=None.');
    const again = await stage.park(run, 'crm__refund', args);
    expect(again.card.id !== card.id, 'a call of its own');
  },

  async 'secrets are hidden until somebody asks'(stage) {
    const run = await stage.run('support', await stage.run('assistant'));
    const { card, answer } = await stage.park(run, 'vault__sign_in', { user: 'ann', password: 'open sesame' });
    const page = await stage.at('dana', `/approve/${card.id}`);
    expect(!(await page.content()).includes('sesame'), 'a secret in the page');
    equal(await page.locator('.edit').count(), 0, 'editors of what is hidden');
    has(await page.textContent('.asks'), 'assistant → support', 'who started it');
    await stage.shot(page, 'secret');
    await Promise.all([page.waitForEvent('load'), page.click('.reveal button')]);
    has(await page.textContent('.sheet'), '"open sesame"', 'what is shown');
    await stage.shot(page, 'secret-shown');
    // What happens elsewhere does not hide it again; to come back does.
    const { card: other } = await stage.refund(7);
    await row(page, other);
    has(await page.textContent('.sheet'), '"open sesame"', 'what is shown');
    await stage.open(page, card);
    expect(!(await page.content()).includes('sesame'), 'a secret in the page again');
    await page.goto(`${stage.admin}/?text=sesame`);
    equal(await page.locator('#rows li').count(), 0, 'what a search for it finds');
    await stage.open(page, card);
    await page.click('#approve');
    equal(JSON.parse((await answer).text).password, 'open sesame', 'what the tool received');
    await stands(page, 'done');
    expect(!(await page.content()).includes('sesame'), 'a secret in the page of the past');
  },

  async 'a filter stays while calls are opened beside it'(stage) {
    const { card } = await stage.refund(8, { reason: 'a needle' });
    await stage.refund(9);
    const page = await stage.at('dana');
    await page.fill('#filter', 'needle');
    await page.press('#filter', 'Enter');
    await page.waitForURL(/text=needle/);
    equal(await page.locator('#rows li').count(), 1, 'what fits');
    await (await row(page, card)).locator('a').click();
    await page.waitForURL(/\/approve\//);
    const { card: new_ } = await stage.refund(10, { reason: 'another needle' });
    await row(page, new_);
    equal(await page.locator('#rows li').count(), 2, 'what fits now');
    await page.goBack();
    await page.waitForURL(/text=needle/);
    equal(await page.locator('#rows li').count(), 2, 'what fits afterwards');
    await page.goto(`${stage.admin}/?text=nothing+like+that`);
    has(await page.textContent('.empty'), 'Nothing fits', 'what it says of nothing');
  },
};
