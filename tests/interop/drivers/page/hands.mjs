// With the keyboard alone, and without a script.
import { equal, expect, has, until } from './stage.mjs';

const selected = (page) => page.getAttribute('#rows .selected', 'data-key');
const focused = (page) => page.evaluate(() => document.activeElement.id);

async function reads(page, card) {
  await page.locator(`#pane .card[data-key="${card.id}"]`).waitFor();
  equal(await selected(page), card.id, 'the line');
}

// Where Tab leads: each place once, in the order of the page.
function stop() {
  const here = document.activeElement;
  if (here === document.body) return null;
  const style = getComputedStyle(here);
  const { left, top, width, height } = here.getBoundingClientRect();
  const there = document.elementFromPoint(left + width / 2, top + height / 2);
  const before = window.stopBefore;
  window.stopBefore = here;
  return {
    what: here.id || here.value || here.textContent.trim().slice(0, 30) || here.className,
    ring: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
    seen: Boolean(there) && (here.contains(there) || there.contains(here)),
    order: !before || Boolean(before.compareDocumentPosition(here) & Node.DOCUMENT_POSITION_FOLLOWING),
  };
}

export const hands = {
  async 'the keyboard is enough'(stage) {
    const calls = [];
    for (const amount of [31, 32, 33, 34, 35]) calls.push(await stage.refund(amount));
    const page = await stage.at('dana');
    const keys = page.keyboard;
    await reads(page, calls[0].card);
    await keys.press('j');
    await reads(page, calls[1].card);
    equal(new URL(page.url()).pathname, `/approve/${calls[1].card.id}`, 'the address');
    await keys.press('k');
    await reads(page, calls[0].card);
    await keys.press('x');
    await keys.press('j');
    await reads(page, calls[1].card);
    await keys.press('x');
    equal(await page.locator('#rows :checked').count(), 2, 'chosen calls');
    await keys.press('x');
    equal(await page.locator('#rows :checked').count(), 1, 'chosen calls after another');

    await keys.press('?');
    expect(await page.locator('#keys').isVisible(), 'the list of keys');
    await stage.shot(page, 'keys');
    await keys.press('a');
    await keys.press('Escape');
    expect(!(await page.locator('#keys').isVisible()), 'the list of keys is closed');
    await keys.press('/');
    equal(await focused(page), 'filter', '/');
    await keys.type('jjad?');
    equal(await page.inputValue('#filter'), 'jjad?', 'keys are letters there');
    await keys.press('Escape');
    equal(await focused(page), '', 'Escape');
    await keys.press('e');
    equal(await focused(page), 'edit', 'e');
    has(await page.textContent('#approve'), 'as asked', 'what Approve means now');
    await keys.press('Escape');
    for (const chord of ['Control+a', 'Alt+d', 'Meta+x']) await keys.press(chord);
    equal(await focused(page), '', 'chords are the browser\'s');

    await keys.press('d');
    equal(await focused(page), 'reason', 'd');
    await keys.type('not this one');
    await keys.press('Enter');
    has((await calls[1].answer).text, 'not this one', 'd and Enter');
    await page.waitForSelector('#pane .state.denied');
    await keys.press('n');
    await reads(page, calls[0].card);
    await keys.press('Enter');
    equal((await stage.card(calls[0].card.id)).state, 'parked', 'Enter alone');
    await keys.press('a');
    equal(await focused(page), 'approve', 'a');
    await stage.shot(page, 'focus');
    await keys.press('Enter');
    equal((await calls[0].answer).error, false, 'a and Enter');
    await page.waitForSelector('#pane .state.done');

    await keys.press('n');
    await reads(page, calls[2].card);
    await keys.press('x');
    await keys.press('j');
    await reads(page, calls[3].card);
    await keys.press('x');
    await keys.press('r');
    await page.waitForSelector('.many');
    equal(await page.locator('.many').count(), 2, 'r');
    await keys.press('a');
    await keys.press('Enter');
    await page.waitForSelector('.results');
    for (const { answer } of calls.slice(2, 4)) equal((await answer).error, false, 'the batch');
    await keys.press('u');
    await reads(page, calls[4].card);
  },

  async 'Tab leads everywhere, in order, and shows where it is'(stage) {
    const { card } = await stage.refund(41, { reason: 'x'.repeat(2000) });
    await stage.refund(42);
    const page = await stage.at('dana', `/approve/${card.id}`);
    const stops = [];
    await page.evaluate(() => { window.stopBefore = null; });
    for (;;) {
      await page.keyboard.press('Tab');
      const at = await page.evaluate(stop);
      if (!at || stops.length > 60) break;
      stops.push(at);
    }
    const names = stops.map(({ what }) => what);
    for (const { what, ring, seen, order } of stops) {
      expect(ring, `no ring around ${what}`);
      expect(seen, `${what} is covered`);
      expect(order, `${what} is out of order: ${names.join(', ')}`);
    }
    equal(names[0], 'Skip to content', 'the first');
    for (const what of ['filter', 'show-keys', 'standing', 'approve', 'reason']) expect(names.includes(what), `${what} is not reached: ${names.join(', ')}`);
    equal(names.at(-1), 'deny', 'the last');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    equal(await focused(page), 'main', 'the skip link');
  },

  async 'without a script everything works too'(stage) {
    const page = await (await stage.context({ javaScriptEnabled: false })).newPage();
    const calls = [];
    for (const amount of [51, 52, 53, 54, 55]) calls.push(await stage.refund(amount, { reason: `plain ${amount}` }));
    await stage.enter(page, 'dana');
    has(await page.title(), '(5) ', 'the title');
    await page.fill('#filter', 'plain 52');
    await page.click('.filters button');
    equal(await page.locator('#rows li').count(), 1, 'the filter');
    await page.click('#rows li a');
    await page.waitForURL(/\/approve\//);
    await page.click('.edit summary');
    await page.fill('#edit', '{"amount": 25}');
    await page.click('.edit button');
    await page.waitForSelector('.draft');
    await page.click('#approve');
    equal(JSON.parse((await calls[1].answer).text), { amount: 25 }, 'an edit');
    await stage.open(page, calls[0].card);
    await page.fill('#reason', 'without a script');
    await page.click('.no button');
    has((await calls[0].answer).text, 'without a script', 'a denial');
    await page.waitForSelector('#pane .state.denied');
    await page.click('#next');
    await page.waitForSelector('#approve');
    await page.selectOption('#standing', { label: 'Any call of it, for 10 minutes' });
    await page.click('#approve');
    equal((await calls[2].answer).error, false, 'an approval');
    await page.goto(stage.admin);
    await stage.shot(page, 'without-script');
    for (const { card } of calls.slice(3)) await page.check(`[value^="${card.id}/"]`);
    await page.click('.batch button');
    await page.waitForSelector('.many');
    await page.click('#approve');
    await page.waitForSelector('.results');
    equal(await page.locator('.results .good').count(), 2, 'a batch');
    await page.goto(`${stage.admin}/standing`);
    await page.click('#rows button');
    await page.waitForSelector('text=None.');
    await page.goto(`${stage.admin}/history`);
    await page.selectOption('[name=state]', 'denied');
    await page.click('.filters button');
    await until(async () => (await page.locator('#rows tr').count()) && (await page.locator('#rows .state:not(.denied)').count()) === 0, 'the history of one kind');
    await page.click('.who form button');
    await page.waitForSelector('#token');
  },
};
