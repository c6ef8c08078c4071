// Keeps the page true to what happens, and its keys. Everything works without it.
"use strict";

const $ = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];

// ---- Times

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const URGENT_SECONDS = 120;

function rough(seconds) {
  const [unit, size] = UNITS.find(([, size]) => seconds >= size) ?? UNITS.at(-1);
  return `${Math.floor(seconds / size)} ${unit}`;
}

function tick() {
  for (const time of all("time[data-moment]")) {
    const seconds = (Date.parse(time.dateTime) - Date.now()) / 1000;
    let text;
    if (time.dataset.moment === "past") {
      text = -seconds < 60 ? "just now" : `${rough(-seconds)} ago`;
    } else {
      text = seconds < 1 ? "time is over" : `${rough(seconds)} left`;
      time.classList.toggle("urgent", seconds < URGENT_SECONDS);
    }
    if (time.textContent !== text) time.textContent = text;
  }
}

// ---- What is shown

// The filter of the list, which stays while cards are opened beside it.
const filter = location.pathname === "/" ? location.search : "";

async function load(url) {
  const answer = await fetch(url, { headers: { accept: "text/html" } });
  // Asks for the page anew: to load it again could send a form again.
  if (answer.status === 401) location.replace(location.href);
  if (answer.status === 404 && url !== "/") return load("/");
  return answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
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
    now.replaceChildren(...lines);
    for (const box of all("input[type=checkbox]", now)) box.checked = chosen.has(box.value);
  }
  for (const selector of [".rows > .empty", ".rows > .more"]) {
    $(selector)?.remove();
    const fresh = $(selector, page);
    if (fresh) $(".rows > .batch").before(fresh);
  }
  mark($(".panes .card")?.dataset.key);
}

// What somebody reads is never swapped for another call, and what they typed stays.
function renewCard(page) {
  const [old, fresh] = [$(".panes .card"), $(".panes .card", page)];
  if (!old) return $("#pane").replaceChildren(...$("#pane", page).childNodes);
  if (fresh?.dataset.key !== old.dataset.key || fresh.dataset.version === old.dataset.version) return;
  if (fresh.dataset.digest !== old.dataset.digest && $("#approve", fresh)) return changed(old);
  const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
  for (const field of all("#edit, #reason, #standing", old)) {
    const same = $(`#${field.id}`, fresh);
    if (same) same.value = field.value;
  }
  const [edit, draft] = [$(".edit", fresh), $(".draft", old)];
  if (edit && $(".edit", old)) edit.open = $(".edit", old).open;
  if (edit && draft) {
    $(".card-head", fresh).after(draft);
    $(".decide", fresh).replaceWith($(".decide", old));
  }
  old.replaceWith(fresh);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

// What is approved is what was read.
function changed(card) {
  for (const button of all("button", card)) button.disabled = true;
  const [notice, link] = ["p", "a"].map((name) => document.createElement(name));
  notice.className = "notice warn";
  notice.setAttribute("role", "alert");
  link.href = `/approve/${card.dataset.key}`;
  link.textContent = "Show it as it is now";
  notice.append("This call was changed while you read it. ", link);
  $(".notice", card)?.remove();
  card.prepend(notice);
}

function mark(key) {
  for (const row of all("#rows .row")) {
    const here = row.dataset.key === key;
    row.classList.toggle("selected", here);
    if (here) $("a", row).setAttribute("aria-current", "true");
    else $("a", row).removeAttribute("aria-current");
  }
}

function count(page) {
  const [now, next] = [$("[data-waiting]"), $("[data-waiting]", page)];
  const [before, waiting] = [now, next].map((one) => Number(one.dataset.waiting));
  if (waiting > before) say(`${waiting} wait`);
  now.replaceWith(next);
  document.title = document.title.replace(/^(\(\d+\) )?/, waiting > 0 ? `(${waiting}) ` : "");
}

let renewing = false;
let again = false;

async function refresh() {
  again = true;
  if (renewing) return;
  renewing = true;
  try {
    while (again) {
      again = false;
      const [still, card] = [$("[data-still]"), $(".panes .card")];
      const page = await load(card ? `/approve/${card.dataset.key}` : still ? "/" : location.href);
      const list = page && filter && card ? await load(`/${filter}`) : page;
      // What was loaded for a page that is left is of no use.
      if (!list || document.body.classList.contains("sending") || $(".panes .card") !== card) continue;
      count(page);
      if ($(".panes")) {
        renewCard(page);
        renewList(list);
      } else if (!still && $("#rows") && $("#rows", page)) {
        renewList(page);
      } else if (!still) {
        $("#pane").replaceWith($("#pane", page));
      }
      tick();
    }
  } catch {
    // Not connected: the next connection brings it.
  } finally {
    renewing = false;
  }
}

// Opens a card beside the list, which keeps its place and what is chosen in it.
let opening = 0;

async function open(href, how = {}) {
  const mine = ++opening;
  const pane = $("#pane");
  const key = href.split("/approve/")[1];
  if (key) mark(key);
  // Keys that were meant for the next call must not decide this one.
  pane.inert = true;
  const page = await load(href).catch(() => null);
  if (mine !== opening) return;
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
  mark($(".card", pane)?.dataset.key);
  $(".row.selected")?.scrollIntoView({ block: "nearest" });
  scrollTo(0, history.state?.y ?? 0);
  if (how.keys) pane.focus({ preventScroll: true });
  tick();
}

if ($(".panes")) {
  addEventListener("popstate", () => open(location.href, { back: true }));
  document.addEventListener("click", (event) => {
    const link = event.target.closest("#rows a, .pane a[href^='/']");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    open(link.pathname === "/" ? `/${filter}` : link.pathname, { keys: link.id === "next" });
  });
}

// ---- What happens

function say(text) {
  $("[data-live]").textContent = text;
}

function hear(what) {
  const lost = document.body.classList.toggle("offline", what === "lost");
  if (lost) say("Not connected; trying again");
  else if ($("[data-live]").textContent.startsWith("Not")) say("");
  if (what !== "open") refresh();
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
  let lost = false;
  for (const kind of ["card", "run", "grant", "snapshot"]) {
    events.addEventListener(kind, () => tell("changed"));
  }
  events.onopen = () => {
    tell(lost ? "changed" : "open");
    lost = false;
  };
  events.onerror = () => {
    lost = true;
    tell("lost");
    // After an answer that is no stream a browser does not try again by itself.
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 5000, "");
  };
  return new Promise(() => {});
}

// ---- Keys

function step(by) {
  const links = all("#rows .row a");
  const at = links.findIndex((link) => link.getAttribute("aria-current"));
  const next = links[at < 0 ? 0 : Math.min(Math.max(at + by, 0), links.length - 1)];
  if (next) open(next.pathname, { keys: true });
}

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  n: () => $("#next")?.click(),
  a: () => $("#approve")?.focus(),
  d: () => $("#reason")?.focus(),
  e: () => {
    const edit = $(".edit");
    if (!edit) return;
    edit.open = true;
    $("#edit").focus();
  },
  x: () => $(".row.selected input")?.click(),
  r: () => $(".rows :checked") && $(".batch button").click(),
  u: () => location.assign("/"),
  "/": () => $("#filter")?.focus(),
  "?": () => $("#keys").showModal(),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape" && typing) return typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
  const action = $("#keys") && Object.hasOwn(KEYS, event.key) && KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

// ---- Forms

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
  const begin = () => listen(`?cursor=${encodeURIComponent($("[data-live]").dataset.live)}`);
  navigator.locks ? navigator.locks.request("portcullis-live", begin) : begin();
}
