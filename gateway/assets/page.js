// Keeps the page true to what happens, and its keys. Everything works without it.
"use strict";

const $ = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const URGENT_SECONDS = 120;

function rough(seconds) {
  const [unit, size] = UNITS.find(([, size]) => seconds >= size) ?? UNITS.at(-1);
  return `${Math.floor(seconds / size)} ${unit}`;
}

function tick() {
  for (const time of all("time[data-moment]")) {
    const left = (Date.parse(time.dateTime) - Date.now()) / 1000;
    let text;
    if (time.dataset.moment === "past") {
      text = left > -60 ? "just now" : `${rough(-left)} ago`;
    } else {
      text = left < 1 ? "time is over" : `${rough(left)} left`;
      time.classList.toggle("urgent", left < URGENT_SECONDS);
    }
    if (time.textContent !== text) time.textContent = text;
  }
}

// The filter of the list, which stays while calls are opened beside it.
const filter = location.pathname === "/" ? location.search : "";
const shown = () => $(".panes .card");
const say = (text) => { $("[data-live]").textContent = text; };

async function load(url) {
  const answer = await fetch(url, { headers: { accept: "text/html" } });
  // Asks for the page anew: to load it again could send a form again.
  if (answer.status === 401) location.replace(location.href);
  if (answer.status === 404 && url !== "/") return load("/");
  if (answer.status >= 500) throw new Error(answer.statusText);
  return answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
}

function mark(key) {
  for (const row of all("#rows .row")) {
    row.classList.toggle("selected", row.dataset.key === key);
    $("a", row).ariaCurrent = row.dataset.key === key ? "true" : null;
  }
}

function count(page) {
  const [now, next] = [$("[data-waiting]"), $("[data-waiting]", page)];
  const [before, waiting] = [now, next].map((one) => Number(one.dataset.waiting));
  if (waiting > before) say(`${waiting} wait`);
  now.replaceWith(next);
  document.title = document.title.replace(/^(\(\d+\) )?/, waiting > 0 ? `(${waiting}) ` : "");
}

// Replaces the lines that changed and leaves the others, with what is chosen there.
function renewList(page) {
  const [now, next] = [$("#rows"), $("#rows", page)];
  const old = new Map([...now.children].map((line) => [line.dataset.key, line]));
  const chosen = new Set(all(":checked", now).map((box) => box.value));
  const lines = [...next.children].map((line) => {
    const same = old.get(line.dataset.key);
    return same?.dataset.version === line.dataset.version ? same : line;
  });
  if (lines.length !== old.size || lines.some((line, at) => line !== now.children[at])) {
    const focused = document.activeElement;
    now.replaceChildren(...lines);
    if (now.contains(focused)) focused.focus({ preventScroll: true });
    for (const box of all("input[type=checkbox]", now)) box.checked = chosen.has(box.value);
  }
  for (const selector of [".rows > .empty", ".rows > .more"]) {
    $(selector)?.remove();
    if ($(selector, page)) $(".rows > .batch").before($(selector, page));
  }
  mark(shown()?.dataset.key);
}

// What somebody reads is never swapped for another call, and what they typed stays.
function renewCard(page) {
  const [old, fresh] = [shown(), $(".panes .card", page)];
  if (!old) return $("#pane").replaceChildren(...$("#pane", page).childNodes);
  if (fresh?.dataset.key !== old.dataset.key || fresh.dataset.version === old.dataset.version) return;
  const [asks, same] = [$("#approve", fresh), fresh.dataset.digest === old.dataset.digest];
  if (asks && !same) {
    // What is approved is what was read.
    for (const button of all("button", old)) button.disabled = true;
    $(".changed", old).hidden = false;
    return;
  }
  if (asks && $(".draft", old)) return;
  if (asks && $(".notice:not(.changed)", old)) $(".changed", fresh).after($(".notice:not(.changed)", old));
  for (const field of all("#edit, #reason, #standing", old)) {
    const now = $(`#${field.id}`, fresh);
    if (now) now.value = field.value;
  }
  if ($(".edit", fresh)) $(".edit", fresh).open = Boolean($(".edit[open]", old));
  const focused = old.contains(document.activeElement) && document.activeElement.id;
  old.replaceWith(fresh);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

let [wanted, retry] = [0, 0];

async function refresh() {
  if (++wanted > 1) return;
  try {
    for (let seen = 0; seen !== wanted;) {
      seen = wanted;
      const [still, card] = [$("[data-still]"), shown()];
      const page = await load(card ? `/approve/${card.dataset.key}` : still ? "/" : location.href);
      const list = page && card && filter ? await load(`/${filter}`) : page;
      // What was loaded for what is left by now is of no use.
      if (!list || document.body.classList.contains("sending") || shown() !== card) continue;
      count(page);
      if ($(".panes")) {
        renewCard(page);
        renewList(list);
      } else if (!still) {
        $("#pane").replaceWith($("#pane", page));
      }
      tick();
    }
  } catch {
    // Not connected.
    clearTimeout(retry);
    retry = setTimeout(refresh, 5000);
  }
  wanted = 0;
}

// Opens a call beside the list, which keeps its place and what is chosen in it.
let opened = 0;

async function visit(href, how = {}) {
  const mine = ++opened;
  const [pane, key] = [$("#pane"), href.split("/approve/")[1]];
  if (key) mark(key);
  // Keys that were meant for the next call must not decide this one.
  pane.inert = true;
  const page = await load(href).catch(() => null);
  if (mine !== opened) return;
  if (!page || !$(".panes", page)) return location.assign(href);
  if (!how.back) {
    history.replaceState({ y: scrollY }, "");
    history.pushState({ y: 0 }, "", href);
  }
  pane.replaceChildren(...$("#pane", page).childNodes);
  pane.inert = false;
  pane.scrollTop = 0;
  $(".panes").className = $(".panes", page).className;
  document.title = page.title;
  count(page);
  mark(shown()?.dataset.key);
  $(".row.selected")?.scrollIntoView({ block: "nearest" });
  scrollTo(0, history.state?.y ?? 0);
  if (how.keys) pane.focus({ preventScroll: true });
  tick();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest(".panes :is(#rows, #pane) a[href]");
  const plain = !event.button && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  if (!link || !plain || !/^\/(approve\/.*)?$/.test(link.pathname)) return;
  event.preventDefault();
  visit(link.pathname === "/" ? `/${filter}` : link.pathname, { keys: link.id === "next" });
});
addEventListener("popstate", () => $(".panes") && visit(location.href, { back: true }));

function hear(what) {
  const before = document.body.classList.contains("offline");
  const lost = document.body.classList.toggle("offline", what === "lost");
  if (lost !== before) say(lost ? "Not connected; trying again" : "");
  if (what === "changed") refresh();
}

// A browser opens six connections to a gateway, so one page listens for all.
const news = new BroadcastChannel("portcullis");
news.onmessage = (event) => hear(event.data);

function tell(what) {
  news.postMessage(what);
  hear(what);
}

function listen(query) {
  const events = new EventSource(`/live${query}`);
  for (const kind of ["card", "run", "grant", "snapshot"]) {
    events.addEventListener(kind, () => tell("changed"));
  }
  events.onopen = () => tell(document.body.classList.contains("offline") ? "changed" : "open");
  events.onerror = () => {
    tell("lost");
    if (events.readyState !== EventSource.CLOSED) return;
    // After an answer that is no stream a browser does not try again by itself.
    setTimeout(listen, query ? 0 : 5000, "");
    refresh();
  };
  return new Promise(() => {});
}

function step(by) {
  const links = all("#rows .row a");
  const at = links.findIndex((link) => link.matches("[aria-current]"));
  const next = links[at < 0 ? 0 : Math.min(Math.max(at + by, 0), links.length - 1)];
  if (next) visit(next.pathname, { keys: true });
}

const focus = (selector) => $(selector)?.focus({ preventScroll: true });
const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  n: () => $("#next")?.click(),
  a: () => focus("#approve"),
  d: () => focus("#reason"),
  e: () => {
    if ($(".edit")) $(".edit").open = true;
    $("#edit")?.focus();
  },
  x: () => $(".row.selected input")?.click(),
  r: () => $(".rows :checked") && $(".batch button").click(),
  u: () => location.assign("/"),
  "/": () => focus("#filter"),
  "?": () => $("#keys").showModal(),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape" && typing) return typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !$("#keys") || $("#keys").open) return;
  if (!Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});

// A second click must not decide something else.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) return event.preventDefault();
  form.dataset.sent = "yes";
  document.body.classList.add("sending");
});
addEventListener("pageshow", () => {
  document.body.classList.remove("sending");
  for (const form of all("form[data-sent]")) delete form.dataset.sent;
});
for (const select of all(".filters select")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}

if ($("[data-live]")) {
  document.body.classList.add("scripted");
  setInterval(tick, 1000);
  $("#show-keys").addEventListener("click", KEYS["?"]);
  // What happened before this page heard of it.
  refresh();
  const begin = () => listen(`?cursor=${encodeURIComponent($("[data-live]").dataset.live)}`);
  navigator.locks ? navigator.locks.request("portcullis-live", begin) : begin();
}
