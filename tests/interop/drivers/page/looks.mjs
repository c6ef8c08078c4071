// How it looks, at every width and in both themes.
import axe from 'axe-core';
import { equal, expect } from './stage.mjs';

const WIDTHS = [1366, 768, 390, 320];
const TOUCH_PX = 40;

// What axe finds that keeps people out. A theme that is still fading in is none that people see.
async function accessible(page, where) {
  await page.evaluate(axe.source);
  for (const [width, scheme, rules] of [[1366, 'light'], [390, 'light'], [390, 'dark', ['color-contrast']], [1366, 'dark', ['color-contrast']]]) {
    await page.setViewportSize({ width, height: 860 });
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    const found = await page.evaluate(async (rules) => {
      const options = { resultTypes: ['violations'], ...(rules && { runOnly: { type: 'rule', values: rules } }) };
      const { violations } = await axe.run(document, options);
      const bad = violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
      return bad.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, any }) => `${html.slice(0, 120)} ${any[0]?.message ?? ''}`).join(' | ')}`);
    }, rules);
    equal(found, [], `${where}, ${width} px, ${scheme}`);
  }
  await page.emulateMedia({ colorScheme: null, reducedMotion: null });
}

// Nothing sticks out, and on a phone everything can be hit with a finger.
async function fits(page, where) {
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 860 });
    const over = await page.evaluate(() => {
      const wide = document.documentElement.scrollWidth - innerWidth;
      const inner = [...document.querySelectorAll('main *')].filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.sr, .scroll'));
      return { wide, inner: inner.map((one) => one.outerHTML.slice(0, 100)) };
    });
    equal(over, { wide: 0, inner: [] }, `${where} at ${width} px`);
  }
  await page.setViewportSize({ width: 390, height: 844 });
  const small = await page.evaluate((least) => {
    const places = [...document.querySelectorAll('button, .button, select, input:not([type=hidden]):not([type=checkbox]), textarea, summary, .top a, .row > a, .pick, .back a')];
    const short = places.filter((one) => one.checkVisibility() && !one.closest('.sr, .fold') && getComputedStyle(one).clipPath === 'none' && one.getBoundingClientRect().height < least);
    return short.map((one) => `${one.outerHTML.slice(0, 80)}: ${one.getBoundingClientRect().height}`);
  }, TOUCH_PX);
  equal(small, [], `${where}: what is too small for a finger`);
}

async function pictures(stage, page, name) {
  for (const [width, scheme] of [[1366, 'light'], [390, 'dark']]) {
    await page.setViewportSize({ width, height: width === 390 ? 844 : 860 });
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    await stage.shot(page, `${name}-${width}-${scheme}`);
  }
}

async function looked(stage, page, name) {
  await fits(page, name);
  await pictures(stage, page, name);
}

async function judged(stage, page, name) {
  await looked(stage, page, name);
  await accessible(page, name);
}

export const looks = {
  async 'the ways in are accessible and fit'(stage) {
    const { card } = await stage.refund(61);
    const page = await (await stage.context()).newPage();
    await page.goto(`${stage.admin}/login`);
    await looked(stage, page, 'sign-in');
    for (const [name, path] of [['sign-in-to-a-call', `/approve/${card.id}`], ['sign-in-by-link', '/login?code=x']]) {
      await page.goto(stage.admin + path);
      await judged(stage, page, name);
    }
  },

  async 'the list and its calls are accessible and fit'(stage) {
    const run = await stage.run('support', await stage.run('assistant'));
    const { card } = await stage.park(run, 'crm__refund', { amount: 62, order: 'o-1', reason: 'x'.repeat(900) });
    const { card: long } = await stage.park(run, 'crm__look', { list: [...Array(200).keys()], [`name${'s'.repeat(80)}`]: 'v'.repeat(300) });
    const { card: odd } = await stage.park(run, stage.hostile.tool, { reason: 'none' });
    const { card: secret } = await stage.park(run, 'vault__sign_in', { password: 'sesame' });
    const { card: two } = await stage.refund(63, {}, 'other');
    await stage.decide(two, 'approve', {}, 'erik');
    const page = await stage.signIn('dana');
    for (const [name, id] of [['call', card.id], ['long', long.id], ['hostile', odd.id], ['two', two.id]]) {
      await stage.open(page, { id });
      await looked(stage, page, name);
    }
    for (const [name, path] of [['list', '/'], ['secret', `/approve/${secret.id}`]]) {
      await page.goto(stage.admin + path);
      await judged(stage, page, name);
    }
    await page.setViewportSize({ width: 1366, height: 860 });
    await stage.open(page, card);
    await page.keyboard.press('e');
    await page.fill('#edit', '{"amount": 6}');
    await Promise.all([page.waitForEvent('load'), page.click('.edit button')]);
    await judged(stage, page, 'edit');
    await page.setViewportSize({ width: 1366, height: 860 });
    await page.goto(stage.admin);
    await page.check(`[value^="${card.id}/"]`);
    await page.check(`[value^="${secret.id}/"]`);
    await Promise.all([page.waitForEvent('load'), page.click('.batch button')]);
    await judged(stage, page, 'batch');
    await Promise.all([page.waitForEvent('load'), page.click('.no button')]);
    await judged(stage, page, 'results');
  },

  async 'the past, what stands and what is not there are accessible and fit'(stage) {
    const { card, answer } = await stage.refund(64);
    await stage.decide(card, 'approve', { standing: { covers: 'tool', lasts: '10m' } });
    await answer;
    const page = await stage.signIn('dana');
    for (const [name, path] of [['history', '/history'], ['standing', '/standing'], ['done', `/approve/${card.id}`], ['nothing', '/approve/apr_nothing'], ['empty', '/']]) {
      await page.goto(stage.admin + path);
      await judged(stage, page, name);
    }
    await page.goto(stage.admin);
    await page.setViewportSize({ width: 1366, height: 860 });
    await page.click('#show-keys');
    await accessible(page, 'the keys');
  },

  async 'nothing moves when time goes by'(stage) {
    const run = await stage.run('support', await stage.run('assistant'));
    await stage.park(run, 'crm__refund', { amount: 65 });
    await stage.refund(66, {}, 'other');
    const page = await stage.signIn('dana');
    await page.clock.install();
    // Where everything begins; what ends with a time may end elsewhere.
    const boxes = () => page.evaluate(() => [...document.querySelectorAll('body *')]
      .filter((one) => !one.closest('time') && one.checkVisibility())
      .map((one) => [one.getBoundingClientRect(), one])
      .map(([{ left, top }, one]) => `${one.className || one.tagName} ${Math.round(left)} ${Math.round(top)}`));
    for (const width of [1366, 390]) {
      await page.setViewportSize({ width, height: 860 });
      await page.goto(stage.admin);
      const [before, said] = [await boxes(), await page.locator('time').allTextContents()];
      await page.clock.runFor('01:05');
      expect(JSON.stringify(await page.locator('time').allTextContents()) !== JSON.stringify(said), 'times go on');
      const after = await boxes();
      equal(after.filter((box, at) => box !== before[at]), [], `what moved at ${width} px`);
    }
  },

  async 'forced colours and less motion are respected'(stage) {
    await stage.refund(67);
    const page = await stage.signIn('dana', { forcedColors: 'active', reducedMotion: 'reduce' });
    await page.goto(stage.admin);
    const [row, button] = await page.evaluate(() => ['.row.selected', '#approve'].map((selector) => {
      const { outlineStyle, borderStyle, transitionDuration } = getComputedStyle(document.querySelector(selector));
      return { outlineStyle, borderStyle, transitionDuration };
    }));
    equal([row.outlineStyle, button.borderStyle], ['solid', 'solid'], 'what marks the line and the button');
    equal([row.transitionDuration, button.transitionDuration], ['0s', '0s'], 'motion');
    await stage.shot(page, 'forced-colours');
  },
};
