"""A complete harness for a Portcullis gateway in one file: take from it what yours needs.

It starts a run of an agent, hands the run to a subagent, shows each call that asks, sends the decision
and stops the run. The subagent here is a stand-in: it makes one call that asks, as a model would.

    export PORTCULLIS_HARNESS_TOKEN=pcl_admin_…
    python harness.py                                             # asks you
    python harness.py --decide deny --reason "not this customer"
"""

import argparse
import asyncio
import hashlib
import json
import os
import queue
import re
import signal
import sys
import threading
import time
import unicodedata
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import httpx2  # comes with mcp
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

NARROW = {"tools": [{"server": "crm", "allow": ["get_customer", "refund"]}]}
TOOL = "crm__refund"
# The reason ends in a character that nobody sees, except on the card.
ARGUMENTS = {"order": "o-5001", "amount": 1.5, "reason": "one day late\u200b"}
SILENT_SECONDS_MAX = 30  # a gateway that holds a call or a stream says something every 15 seconds
TRIES = 30  # a second apart: a gateway may be started again meanwhile


class Failed(Exception):
    """Why the harness did not reach its end, for a person; with the status of a refusal."""

    def __init__(self, message, status=0, answer=None):
        super().__init__(message)
        self.status, self.answer = status, answer


class Gateway:
    """The admin API, as far as a harness needs it."""

    def __init__(self, url, token):
        self.url, self.token = urlsplit(url), token

    def ask(self, method, path, body=None, tries=1):
        """The answer to a request. All but the start of a run may be sent again: it does no more then."""
        try:
            with self._open(method, path, body) as response:
                return json.loads(response.read())
        except Failed as failed:
            if failed.status or tries == 1:
                raise
        time.sleep(1)
        return self.ask(method, path, body, tries - 1)

    def events(self):
        """What stands, then what happens; after a broken connection goes on where it was."""
        place, broken = None, 0
        while True:
            try:
                with self._open("GET", "/v1/events", headers={"Last-Event-ID": place} if place else {}) as lines:
                    for place, kind, data in server_sent_events(lines, place):
                        broken = 0
                        if data:
                            yield kind, json.loads(data)
            except Failed as failed:
                broken += 1
                if failed.status == 400 and place:
                    place = None  # too old by now: begin again with what stands
                elif 0 < failed.status < 500 or broken == TRIES:
                    raise
            time.sleep(1)

    @contextmanager
    def _open(self, method, path, body=None, headers=None):
        kind = HTTPSConnection if self.url.scheme == "https" else HTTPConnection
        connection = kind(self.url.netloc, timeout=SILENT_SECONDS_MAX)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **(headers or {})}
        try:
            connection.request(method, self.url.path.rstrip("/") + path, body and json.dumps(body), headers)
            response = connection.getresponse()
            if response.status >= 400:
                answer = json.loads(response.read())
                why = answer.get("error", {}).get("message", "too late")
                raise Failed(f"the gateway refused ({response.status}): {why}", response.status, answer)
            yield response
        except (OSError, HTTPException, json.JSONDecodeError) as error:
            raise Failed(f"no gateway answers at {self.url.geturl()}: {error}") from error
        finally:
            connection.close()


def server_sent_events(lines, place):
    """Place, kind and data of each event. One without data only says where the stream is."""
    kind, data = "message", []
    for line in lines:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            place = value
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif not name and not value:
            yield place, kind, "\n".join(data)
            kind, data = "message", []


@contextmanager
def started(gateway, agent):
    """Step 1: a run, which ends with this block, whatever happens in it."""
    run = gateway.ask("POST", "/v1/runs", {"agent": agent, "ttl": "15m", "narrow": NARROW})
    try:
        row("run", f"{run['run']} of {run['agent']}, until {run['expires']}")
        row("url", run["url"])
        row("tools", ", ".join(f"{tool['name']} ({tool['approval']})" for tool in run["tools"]) or "none")
        for gone in run["missing"]:
            row("missing", f"{gone['server']} {gone['tool'] or ''}: {gone['why']} (declared at {gone['declared']})")
        for said in run["diagnostics"]:
            row(said["severity"], f"{said['message']} ({said['file']})")
        yield run
    finally:
        try:
            ended = gateway.ask("DELETE", f"/v1/runs/{run['run']}?why=its+harness+ended+it", tries=5)
            row("stopped", f"{run['run']}; calls that still waited and are denied: {len(ended['settled'])}")
        except Failed as failed:
            row("not stopped", f"{run['run']}: {failed}; it ends by itself at {run['expires']}")


async def subagent(url, token):
    """Step 2: an agent has the URL and the token of its run, and nothing else. No time limit of its own:
    its call is held until somebody decides, and denied when nobody does in time or the run ends."""
    broken = 0
    while True:
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=SILENT_SECONDS_MAX)
        try:
            async with http, Client(streamable_http_client(url, http_client=http)) as client:
                result = await client.call_tool(TOOL, ARGUMENTS)
            # "undisclosed": it did not run yet, and the gateway could not hold it any longer.
            authorization = (result.meta or {}).get("io.modelcontextprotocol/authorization", {})
            if authorization.get("remediation") != "undisclosed":
                return result
        except Exception as error:
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            broken += 1
            if broken == TRIES:
                raise Failed(f"the subagent lost the gateway: {error}") from error
        # The identical call joins the card that is there: nobody is asked twice, nothing runs twice.
        await asyncio.sleep(1)


def parked_cards(gateway, run):
    """Step 3: the ids of the cards of `run` that wait, each once."""
    seen = set()
    for kind, event in gateway.events():
        cards = event["approvals"] if kind == "snapshot" else [event] if kind == "card" else []
        for card in cards:
            if card["run"] == run and card["state"] == "parked" and card["id"] not in seen:
                seen.add(card["id"])
                yield card["id"]


def show(card):
    """All that would run, and nothing hidden."""
    row("approval", f"{card['id']}, to be decided until {card['deadline']}")
    row("agent", " below ".join(f"{one['agent']} in {one['run']}" for one in [card, *card["parents"]]))
    row("server", card["server"])
    row("tool", card["tool"])
    row("rule", card["rule"])
    row("arguments", "left out for this token" if card["masked"] else card["arguments"])
    row("digest", card["digest"] or "left out with them")
    claims = [f"{name}: {said}" for name, said in (card["claims"] or {}).items() if said is not None]
    row("claims", f"{card['title']!r}, {', '.join(claims)} (the words of the server)")


def row(name, text):
    print(f"{name:<12}{plain(text)}", flush=True)


UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]")


def plain(text):
    """With an escape for each character that hides, moves or changes others."""

    def hidden(c):
        return c != " " and unicodedata.category(c)[0] in "CZ" or UNSEEN.match(c)

    return "".join(f"\\u{{{ord(c):x}}}" if hidden(c) else c for c in text)


def decide(gateway, approval, options):
    """Step 4: a decision about one card as it was shown."""
    card = gateway.ask("GET", f"/v1/approvals/{approval}", tries=TRIES)
    if card["state"] != "parked":
        return
    show(card)
    decision, reason = (options.decide, options.reason) if options.decide else asked_at_terminal()
    shown = "sha256:" + hashlib.sha256((card["arguments"] or "").encode()).hexdigest()
    if decision == "approve" and shown != card["digest"]:
        raise Failed("the digest is not that of the arguments shown, so nothing was approved")
    body = {"decision": decision, "digest": card["digest"]} | ({"reason": reason} if reason else {})
    try:
        card = gateway.ask("POST", f"/v1/approvals/{approval}/decision", body, tries=TRIES)
        row("decided", fate(card))
    except Failed as failed:
        if failed.status != 409:
            raise
        row("too late", f"something else came first: {fate(failed.answer)}")


def asked_at_terminal():
    while True:
        try:
            word, _, reason = input("May it run, once, as shown? y, or n and why: ").strip().partition(" ")
        except (EOFError, KeyboardInterrupt):
            print()  # ends the line of the question
            raise
        if word in ("y", "yes") and not reason:
            return "approve", ""
        if word in ("n", "no"):
            return "deny", reason.strip()


def fate(card):
    """What became of a card, and who said so."""
    text = f"{card['id']} is {card['state']}" + (f" ({card['outcome']})" if card["outcome"] else "")
    if card["state"] == "parked":
        text += f" with {len(card['votes'])} of {card['needed']} approvals"
    if said := card["decision"]:
        text += f"; {said['by']} said {said['decision']}" + (f": {said['reason']}" if said["reason"] else "")
    return text


def work(gateway, run, options):
    """What happens between the start of the run and its end."""
    news = queue.Queue()

    def answer():
        yield asyncio.run(subagent(run["url"], run["token"]))

    def in_background(source):
        try:
            for new in source:
                news.put(new)
        except Exception as error:
            news.put(error)

    for source in (parked_cards(gateway, run["run"]), answer()):
        threading.Thread(target=in_background, args=[source], daemon=True).start()
    while isinstance(new := news.get(), str):
        decide(gateway, new, options)
    if isinstance(new, Exception):
        raise new
    # Step 5. The list is the truth: it also has what was never heard of as an event.
    row("returned", "\n".join(block.text for block in new.content if block.type == "text"))
    cards = gateway.ask("GET", f"/v1/approvals?run={run['run']}", tries=TRIES)["items"]
    for card in cards:
        row("ended", fate(card))
    if not cards:
        raise Failed("the call ended without asking anybody")
    if not all(card["state"] == "denied" or card["outcome"] in ("ok", "tool_error", "rpc_error") for card in cards):
        raise Failed("the call did not end as somebody decided")


def main():
    parser = argparse.ArgumentParser(description="Runs a subagent behind a gateway and decides its calls.")
    parser.add_argument("--agent", default="support")
    parser.add_argument("--decide", choices=["approve", "deny"], help="instead of asking at the terminal")
    parser.add_argument("--reason", default="", help="of --decide deny; the agent reads it")
    options = parser.parse_args()
    token = os.environ.get("PORTCULLIS_HARNESS_TOKEN", "").strip()
    if not token:
        parser.error("PORTCULLIS_HARNESS_TOKEN is not set")
    if not options.decide and not sys.stdin.isatty():
        parser.error("no terminal to ask at; give --decide")
    gateway = Gateway(os.environ.get("PORTCULLIS_ADMIN_URL") or "http://127.0.0.1:7778", token)
    with started(gateway, options.agent) as run:
        work(gateway, run, options)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    try:
        main()
    except Failed as failed:
        sys.exit(f"harness: {plain(str(failed))}")
    except EOFError:
        sys.exit("harness: nobody decided")
    except KeyboardInterrupt:
        sys.exit(130)
