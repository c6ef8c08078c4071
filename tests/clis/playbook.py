"""The script side of the rig: what the model says at each turn, and what it checks.

A script is JSON. Either one conversation:

    {"turns": [TURN, ...]}

or several (a main agent and its subagents; the first whose `match` fits is taken):

    {"conversations": [{"name": "support", "match": "REGEX", "turns": [TURN, ...]},
                       {"name": "main", "turns": [TURN, ...]}]}

`match` is searched in the system prompt and the first user text. A TURN is one answer:

    {"tool": "crm__refund", "args": {...}}          one tool call
    {"calls": [{"tool": ..., "args": ...}, ...]}    several calls in one answer
    {"text": "DONE"}                                the closing text, last turn only

and may carry checks that run when the request for that turn arrives:

    "expect": REGEX or [REGEX, ...]   each has to match the newest tool results
    "refuse": REGEX or [REGEX, ...]   none may match the newest tool results
    "offers": [NAME, ...]             each has to be among the offered tools
    "hides":  [NAME, ...]             none may be among the offered tools
    "only":   [NAME, ...]             exactly these gateway tools are offered

Names are the gateway's (`crm__refund`); what a CLI puts around them is taken off.
`"defaults": {"NAME": "VALUE"}` at the top declares variables, written `<<NAME>>` in any
string of the turns; the caller may give other values.

Nothing is remembered between requests: every tool call's id says which turn of which
conversation made it, so a repeated request is answered like the first one.
"""

import json
import re
import secrets
import threading
import time
from dataclasses import dataclass, field

SERVER = "gw"  # how the CLIs' configurations name the gateway
TOP_KEYS = {"defaults", "turns", "conversations"}
CONVERSATION_KEYS = {"name", "match", "turns"}
CALL_KEYS = {"tool", "args"}
TURN_KEYS = {"tool", "args", "calls", "text", "expect", "refuse", "offers", "hides", "only"}
CALL_ID = re.compile(r"c(\d+)t(\d+)n\d+x[0-9a-f]+$")


class ScriptError(Exception):
    """The script itself is wrong."""


@dataclass(frozen=True)
class Tool:
    """A tool as one CLI offers it to the model."""

    wire: str
    space: str | None = None

    @property
    def plain(self):
        if self.space is None and self.wire.startswith("mcp__"):
            return self.wire.split("__", 2)[-1]
        return self.wire.removeprefix(SERVER + "_")

    @property
    def ours(self):
        """Whether it comes over MCP: the CLI's own tools carry no mark."""
        return self.plain != self.wire or bool(self.space and self.space.startswith("mcp__"))


@dataclass(frozen=True)
class Outcome:
    """One tool result the CLI sends back."""

    call_id: str
    text: str


@dataclass
class Ask:
    """One request to the model, whatever API it came through."""

    opening: str
    tools: list = field(default_factory=list)
    outcomes: list = field(default_factory=list)
    stream: bool = True
    model: str = "scripted"


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Use:
    call_id: str
    tool: Tool
    args: dict


def listing(tools):
    """The offered tools for a message: the gateway's by name, the CLI's own by number."""
    ours = sorted(t.plain for t in tools if t.ours)
    return f"offered: {', '.join(ours) or 'none'} and {len(tools) - len(ours)} of the CLI's own"


def _many(value):
    return [value] if isinstance(value, str) else list(value or [])


def _fill(value, names):
    """Puts the variables into every string of a JSON value."""
    if isinstance(value, str):
        return re.sub(r"<<(\w+)>>", lambda m: _lookup(names, m.group(1)), value)
    if isinstance(value, list):
        return [_fill(v, names) for v in value]
    if isinstance(value, dict):
        return {k: _fill(v, names) for k, v in value.items()}
    return value


def _lookup(names, name):
    if name not in names:
        raise ScriptError(f"no value for <<{name}>>")
    return names[name]


def _known(where, value, keys):
    odd = set(value) - keys
    if odd:
        raise ScriptError(f"{where}: unknown keys {sorted(odd)}")


class Conversation:
    def __init__(self, index, source):
        _known("conversation", source, CONVERSATION_KEYS)
        self.index = index
        self.name = source.get("name", "main" if "match" not in source else f"#{index}")
        self.match = re.compile(source.get("match", ""))
        self.turns = source.get("turns") or []
        if not self.turns:
            raise ScriptError(f"{self.name}: no turns")
        for n, turn in enumerate(self.turns):
            self._validate(n, turn)

    def _validate(self, n, turn):
        where = f"{self.name}: turn {n}"
        _known(where, turn, TURN_KEYS)
        for call in turn.get("calls", []):
            _known(where, call, CALL_KEYS)
        if sum(k in turn for k in ("tool", "calls", "text")) != 1:
            raise ScriptError(f"{where}: needs one of tool, calls, text")
        if ("text" in turn) != (n == len(self.turns) - 1):
            raise ScriptError(f"{where}: the last turn, and only it, is a text")
        if n == 0 and (turn.get("expect") or turn.get("refuse")):
            raise ScriptError(f"{where}: there is no tool result yet to look at")
        for pattern in _many(turn.get("expect")) + _many(turn.get("refuse")):
            re.compile(pattern)

    def calls(self, n):
        turn = self.turns[n]
        if "text" in turn:
            return []
        return turn.get("calls") or [{"tool": turn["tool"], "args": turn.get("args", {})}]


class Playbook:
    """Answers requests from a script and keeps the account of it."""

    def __init__(self, source, values=None):
        _known("script", source, TOP_KEYS)
        names = {**source.get("defaults", {}), **(values or {})}
        listed = source.get("conversations") or [{"turns": source.get("turns")}]
        self.conversations = [Conversation(i, _fill(c, names)) for i, c in enumerate(listed)]
        self._lock = threading.Lock()
        self._problems = []
        self._checks = set()
        self._played = set()
        self._sent = {}
        self._waits = {}

    @classmethod
    def read(cls, path, values=None):
        try:
            with open(path, encoding="utf-8") as f:
                return cls(json.load(f), values)
        except (OSError, ValueError, re.error) as e:
            raise ScriptError(f"{path}: {e}") from e

    def answer(self, ask):
        """-> (where, list of Say and Use); `where` is for the log."""
        if not ask.tools:  # a title or a summary, not the agent itself
            return "aside", [Say("ok")]
        with self._lock:
            conv = next((c for c in self.conversations if c.match.search(ask.opening)), None)
            if conv is None:
                return self._stop("?", f"no conversation fits a request that begins {ask.opening[:120]!r}")
            n, newest = self._position(conv, ask.outcomes)
            where = f"{conv.name}: turn {n}"
            if n >= len(conv.turns):
                return self._stop(where, "asked for after the script's end")
            self._played.add((conv.index, n))
            self._check(conv, n, ask, newest)
            return self._moves(conv, n, ask, where)

    def _position(self, conv, outcomes):
        """The turn this request asks for, and the results of the turn before it."""
        ours = []
        for o in outcomes:
            m = CALL_ID.search(o.call_id)
            if m and int(m.group(1)) == conv.index:
                ours.append((int(m.group(2)), o))
        if not ours:
            return 0, []
        last = max(t for t, _ in ours)
        newest = [o for t, o in ours if t == last]
        self._arrived(conv, last, newest)
        return last + 1, newest

    def _arrived(self, conv, turn, newest):
        now = time.monotonic()
        for o in newest:
            sent = self._sent.pop(CALL_ID.search(o.call_id).group(0), None)
            if sent is not None:
                self._waits.setdefault((conv.name, turn), round(now - sent, 3))
        due = len(conv.calls(turn)) if turn < len(conv.turns) else 0
        if len(newest) != due:
            self._problem(f"{conv.name}: turn {turn}", f"{due} calls, but {len(newest)} results")

    def _check(self, conv, n, ask, newest):
        turn, where = conv.turns[n], f"{conv.name}: turn {n}"
        text = "\n".join(o.text for o in newest)
        offered = {t.plain for t in ask.tools} | {t.wire for t in ask.tools}
        seen = listing(ask.tools)
        rows = [("expect", p, re.search(p, text), f"tool result {text[:500]!r}") for p in _many(turn.get("expect"))]
        rows += [("refuse", p, not re.search(p, text), f"tool result {text[:500]!r}") for p in _many(turn.get("refuse"))]
        rows += [("offers", name, name in offered, seen) for name in turn.get("offers", [])]
        rows += [("hides", name, name not in offered, seen) for name in turn.get("hides", [])]
        if "only" in turn:
            rows.append(("only", ", ".join(turn["only"]), {t.plain for t in ask.tools if t.ours} == set(turn["only"]), seen))
        for kind, wanted, holds, got in rows:
            self._checks.add((conv.index, n, kind, wanted))
            if not holds:
                self._problem(where, f"{kind} {wanted!r} does not hold; {got}")

    def _moves(self, conv, n, ask, where):
        turn, moves = conv.turns[n], []
        if "text" in turn:
            return where, [Say(turn["text"])]
        for i, call in enumerate(conv.calls(n)):
            wanted = call["tool"]
            tool = next((t for t in ask.tools if wanted in (t.plain, t.wire)), None)
            if tool is None:
                return self._stop(where, f"wants to call {wanted!r}, which is not offered; {listing(ask.tools)}")
            call_id = f"c{conv.index}t{n}n{i}x{secrets.token_hex(4)}"
            self._sent[call_id] = time.monotonic()
            moves.append(Use(call_id, tool, call.get("args", {})))
        return where, moves

    def _problem(self, where, what):
        line = f"{where}: {what}"
        if line not in self._problems:
            self._problems.append(line)

    def _stop(self, where, what):
        self._problem(where, what)
        return where, [Say(f"The script stops here: {what}")]

    def closing(self):
        """The main conversation's last text, if it is clear which one that is."""
        mains = [c for c in self.conversations if not c.match.pattern]
        return mains[0].turns[-1]["text"] if mains else None

    def verdict(self):
        with self._lock:
            problems = list(self._problems)
            for c in self.conversations:
                missing = [n for n in range(len(c.turns)) if (c.index, n) not in self._played]
                if missing:
                    problems.append(f"{c.name}: {len(missing)} of {len(c.turns)} turns never asked for, first {missing[0]}")
            waits = [{"conversation": c, "turn": t, "seconds": s} for (c, t), s in sorted(self._waits.items())]
            return {"ok": not problems, "turns": len(self._played), "checks": len(self._checks),
                    "problems": problems, "waits": waits}
