// X04: text from elsewhere is text, wherever it is shown.
import { equal, expect, has } from './stage.mjs';

const RUN = 'window.ranHere=1';
const HIDDEN = 'a\u202eb\u2066c\u200bd\u00ade\ufefff\u0007g\u0000h\u007fi\u2028j\u{e0041}k\u061cl\u3164m';
const EVIL = [
  `<script>${RUN}</script>`,
  `"><img src=x onerror="${RUN}">`,
  `' onmouseover='${RUN}' x='`,
  `</textarea><script>${RUN}</script>`,
  `</pre></blockquote></title></style></option><svg onload=${RUN}>`,
  `javascript:${RUN}`,
  `<a href="javascript:${RUN}">x</a><style>*{display:none}</style><base href=//evil.example>`,
  '{{7*7}} ${7*7} <%= 7*7 %> &lt;b&gt; &amp;amp;',
  HIDDEN,
];

// Every character that hides, moves or colours others.
const SEEN_BY_NOBODY = /[\p{Cc}\p{Cf}\u2028\u2029\u3164]/u;

const spelled = (text, spell) => [...text].map((c) => (SEEN_BY_NOBODY.test(c) ? spell(c) : c)).join('');
// As JSON has it, and as the page has it elsewhere.
const inJson = (text) => spelled(JSON.stringify(text), (c) => c.split('').map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''));
const inText = (text) => spelled(text, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

async function harmless(page, where) {
  const found = await page.evaluate(([hidden]) => {
    const strange = 'img, iframe, object, embed, style, base, meta[http-equiv], [style], svg svg, link:not([href="/page.css"]):not([rel=icon])';
    const places = [...document.querySelectorAll('[href], [src], [action], [formaction], [srcset]')];
    const values = places.flatMap((one) => ['href', 'src', 'action', 'formaction', 'srcset'].map((name) => one.getAttribute(name)).filter(Boolean));
    const walk = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
    const unseen = [document.title];
    while (walk.nextNode()) if (!walk.currentNode.parentElement.closest('textarea')) unseen.push(walk.currentNode.data.replace(/[\n\t]/g, ''));
    for (const one of document.querySelectorAll('[title], [aria-label]')) unseen.push(one.title, one.ariaLabel ?? '');
    return {
      ran: window.ranHere ?? 'nothing',
      scripts: [...document.scripts].map((one) => one.getAttribute('src') + one.textContent),
      strange: [...document.querySelectorAll(strange)].map((one) => one.outerHTML.slice(0, 80)),
      handlers: [...document.querySelectorAll('*')].filter((one) => [...one.attributes].some(({ name }) => name.startsWith('on'))).length,
      elsewhere: values.filter((value) => !/^(\/(?!\/)|#|data:image\/svg\+xml,)/.test(value)),
      unseen: unseen.filter((text) => new RegExp(hidden, 'u').test(text)).map((text) => text.slice(0, 80)),
    };
  }, [SEEN_BY_NOBODY.source]);
  equal(found, { ran: 'nothing', scripts: ['/page.js'], strange: [], handlers: 0, elsewhere: [], unseen: [] }, where);
}

async function shown(page, parts, selector, where) {
  const text = await page.textContent(selector);
  for (const part of parts) has(text, part, where);
  await harmless(page, where);
}

export const texts = {
  async 'X04 hostile arguments are text'(stage) {
    const args = Object.fromEntries(EVIL.map((text, at) => [`${at} ${text}`, text]));
    const { card, answer } = await stage.park('support', 'crm__look', args);
    const page = await stage.at('dana');
    await harmless(page, 'the list');
    await shown(page, EVIL.map(inJson), '.sheet', 'the call');
    await stage.shot(page, 'hostile-arguments');
    // The editor has the very same arguments, through the browser and back.
    await page.click('.edit summary');
    await Promise.all([page.waitForEvent('load'), page.click('.edit button')]);
    await shown(page, ['Nothing is changed'], '.notice.bad', 'an edit that is none');
    const edited = JSON.stringify(Object.fromEntries(EVIL.map((text, at) => [`${at} ${text}`, `${text}!`])));
    await page.fill('#edit', edited);
    await Promise.all([page.waitForEvent('load'), page.click('.edit button')]);
    await shown(page, EVIL.map((text) => inJson(`${text}!`)), '.draft', 'an edit');
    await page.click('#approve');
    await page.waitForSelector('#pane .state.done');
    equal(JSON.parse((await answer).text), JSON.parse(edited), 'what the tool received');
    await shown(page, EVIL.map((text) => inJson(`${text}!`)), '.arguments', 'the call afterwards');
    await page.goto(`${stage.admin}/history`);
    await harmless(page, 'the history');
    const { card: next } = await stage.park('support', 'crm__look', args);
    await stage.open(page, next);
    await shown(page, EVIL.map(inJson), '.last', 'the last time');
    expect(next.id !== card.id, 'a call of its own');
  },

  async 'X04 what a hostile server says of its tool is text'(stage) {
    const { tool, title, description } = stage.hostile;
    const run = await stage.run('support');
    const { card, answer } = await stage.park(run, tool, { reason: EVIL[0] });
    const { card: other } = await stage.park(run, tool, { reason: EVIL[1] });
    const page = await stage.at('dana', `/approve/${card.id}`);
    await shown(page, [inText(title)], '.claimed-title', 'the title');
    await shown(page, description.split('\n').map(inText), '.claims blockquote', 'the description');
    await stage.shot(page, 'hostile-tool');
    await page.check(`[value^="${card.id}/"]`);
    await page.check(`[value^="${other.id}/"]`);
    await Promise.all([page.waitForEvent('load'), page.click('.batch button')]);
    await shown(page, [inText(title), ...description.split('\n').map(inText)], 'main', 'a batch');
    await stage.open(page, card);
    await page.selectOption('#standing', { label: 'Any call of it, for 10 minutes' });
    await page.click('#approve');
    equal((await answer).error, false, 'the answer');
    await page.goto(`${stage.admin}/standing`);
    await harmless(page, 'what stands');
  },

  async 'X04 hostile reasons are text, to the page and to the agent'(stage) {
    const reason = EVIL.slice(0, 7).join(' ') + HIDDEN.replace(/[\0\u2028]/g, '');
    const [one, two] = [await stage.refund(21), await stage.refund(22)];
    const page = await stage.at('dana', `/approve/${one.card.id}`);
    await page.fill('#reason', reason);
    await page.click('.no button');
    await page.waitForSelector('#pane .state.denied');
    await shown(page, [inText(reason)], '.said blockquote', 'the call');
    has((await one.answer).text, EVIL[0], 'what the agent reads');
    await page.goto(stage.admin);
    await page.check(`[value^="${two.card.id}/"]`);
    await Promise.all([page.waitForEvent('load'), page.click('.batch button')]);
    await page.fill('#reason', reason);
    await Promise.all([page.waitForEvent('load'), page.click('.no button')]);
    await shown(page, ['denied'], '.results', 'the results');
    has((await two.answer).text, EVIL[0], 'what the agent reads');
  },

  async 'X04 hostile addresses are text'(stage) {
    await stage.refund(23);
    const page = await stage.at('dana');
    for (const text of EVIL) {
      const evil = encodeURIComponent(text);
      await page.goto(`${stage.admin}/?text=${evil}&agent=${evil}`);
      // A field of one line has no line breaks, and no browser keeps a zero.
      equal((await page.inputValue('#filter')).replace(/\ufffd/g, '\0'), text, 'the filter');
      await harmless(page, `a filter ${text}`);
    }
    const evil = encodeURIComponent(EVIL.slice(0, 7).join(' '));
    for (const path of [`/history?agent=${evil}`, `/history?state=${evil}`, `/history?cursor=${evil}`, `/approve/${evil}`, `/standing?x=${evil}`]) {
      await page.goto(stage.admin + path);
      await harmless(page, path);
    }
    const stranger = await (await stage.context()).newPage();
    for (const path of [`/login?code=${evil}`, `/approve/${evil}`, `/login?next=${evil}`]) {
      await stranger.goto(stage.admin + path);
      await harmless(stranger, `${path} as a stranger`);
    }
  },
};
