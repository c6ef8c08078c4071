// Approvers at the page of a gateway, in Debian's Chromium: page.mjs SETTINGS
//
// SETTINGS is JSON: {admin, agents} are base URLs, {tokens: {operator, dana, erik, viewer}} those of
// principals (dana and erik approve), {agentTokens: {support, other}} those of agents, {hostile:
// {tool, title, description}} what a hostile server says of a tool, {parts} which of the parts below
// are wanted, {only} a pattern for the names of checks, and {shots} a folder for pictures; these
// three may be left out. Prints a line for each check; at the first that fails it says why and exits
// with status 1. It prints `restart` when the gateway is to be started anew, and goes on when a line
// comes in.
//
// `support` may `refund`, `look`, `sign_in` (whose `password` is secret) and use the hostile tool;
// one approval may cover the tool. `other` may `refund`, and two have to approve it.
import { chromium } from 'playwright-core';
import { Stage } from './page/stage.mjs';
import { decisions } from './page/decisions.mjs';
import { doors } from './page/doors.mjs';
import { hands } from './page/hands.mjs';
import { looks } from './page/looks.mjs';
import { several } from './page/several.mjs';
import { texts } from './page/texts.mjs';

const settings = JSON.parse(process.argv[2]);
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: [
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    // The other switches do not keep it from looking up hosts of its maker.
    '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost',
  ],
});
const stage = new Stage(settings, browser);
const only = new RegExp(settings.only ?? '.');
let failed = '';
const parts = { doors, decisions, several, texts, hands, looks };
const wanted = settings.parts ?? Object.keys(parts);
const checks = wanted.flatMap((part) => Object.entries(parts[part]));
for (const [name, check] of checks.filter(([name]) => only.test(name))) {
  const began = Date.now();
  try {
    await check(stage);
    await stage.clear();
  } catch (error) {
    failed = `not ok: ${name}: ${error.stack ?? error}`;
    await stage.picture(name);
    break;
  }
  console.log(`ok: ${name} (${Date.now() - began} ms)`);
}
await browser.close();
if (failed) console.error(failed);
// Calls that are still held must not keep it alive.
process.exit(failed ? 1 : 0);
