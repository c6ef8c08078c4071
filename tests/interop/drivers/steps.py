"""The step loop of the Python drivers.

A driver hands over a factory of an async context manager that yields a connected client with the
methods of `Client` below. Results are dictionaries in wire spelling. Every step gets one answer line,
also when the connection breaks in the middle of it.
"""

import asyncio
import json
import sys
from typing import Any, Protocol


URL_ELICITATION_REQUIRED = -32042

# Standard output is for answers alone, and an SDK may print there.
_answers, sys.stdout = sys.stdout, sys.stderr


# URLs that the user was asked to open since the last answer.
asked: list[str] = []


class Client(Protocol):
    """What a driver offers. `fresh` asks an SDK that caches lists to go to the server."""

    protocol: str | None
    instructions: str | None

    async def tools(self, fresh: bool) -> list[dict[str, Any]]: ...
    async def resources(self, fresh: bool) -> list[dict[str, Any]]: ...
    async def prompts(self, fresh: bool) -> list[dict[str, Any]]: ...
    async def call(self, name, arguments, timeout_s, on_progress) -> dict[str, Any]: ...
    async def read(self, uri: str) -> dict[str, Any]: ...
    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]: ...


def wire(model) -> dict[str, Any]:
    """A result of either SDK generation, with the names it had on the wire."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def pages(fetch, key: str) -> list[dict[str, Any]]:
    """All pages of a list; `fetch` takes a cursor or None."""
    items, cursor = [], None
    while True:
        page = wire(await fetch(cursor))
        items += page[key]
        cursor = page.get("nextCursor")
        if cursor is None:
            return items


def arguments() -> tuple[str, str | None]:
    """URL and token of the command line; an empty token means none."""
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(f"usage: {sys.argv[0]} URL [TOKEN] < steps.jsonl")
    token = sys.argv[2] if len(sys.argv) == 3 else ""
    return sys.argv[1], token or None


def settings(**defaults: str) -> dict[str, str]:
    """What the command line says after URL and token, as NAME=VALUE; to be asked before `arguments`."""
    given = dict(word.split("=", 1) for word in sys.argv[3:] if "=" in word)
    if len(given) < len(sys.argv[3:]) or given.keys() - defaults.keys():
        sys.exit(f"{sys.argv[0]} takes {', '.join(defaults)} as NAME=VALUE after URL and TOKEN")
    del sys.argv[3:]
    return defaults | given


def bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def drive(connect) -> None:
    """Runs the whole conversation and ends the process."""
    sys.exit(asyncio.run(_converse(connect)))


async def _converse(connect) -> int:
    pending = "connect"
    try:
        async with connect() as client:
            _say({"op": "connect", "ok": True, "protocol": client.protocol, "instructions": client.instructions})
            pending = None
            while line := await asyncio.to_thread(sys.stdin.buffer.readline):
                if not line.strip():
                    continue
                pending = "?"
                try:
                    step = json.loads(line)
                    pending = step["op"]
                    answer = await _answer(client, step)
                except Exception as error:
                    answer = _failure(pending, error)
                if asked:
                    answer["asked"] = asked.copy()
                    asked.clear()
                _say(answer)
                pending = None
    except Exception as error:
        if pending == "connect":
            _say({"op": "connect", "ok": False, **_cause(error)})
        elif pending is not None:
            _say(_failure(pending, error))
        else:
            print(f"the connection ended with {_cause(error)}", file=sys.stderr)
        return 1
    return 0


async def _answer(client: Client, step: dict[str, Any]) -> dict[str, Any]:
    op, fresh = step["op"], step.get("fresh", False)
    match op:
        case "list":
            return {"op": op, "tools": [tool["name"] for tool in await client.tools(fresh)]}
        case "resources":
            return {"op": op, "resources": [resource["uri"] for resource in await client.resources(fresh)]}
        case "prompts":
            return {"op": op, "prompts": [prompt["name"] for prompt in await client.prompts(fresh)]}
        case "call":
            return await _call(client, step)
        case "read":
            contents = (await client.read(step["uri"]))["contents"]
            return {
                "op": op,
                "uris": [content["uri"] for content in contents],
                "text": _joined(contents),
                "blobs": sum("blob" in content for content in contents),
            }
        case "prompt":
            messages = (await client.prompt(step["name"], step.get("arguments") or {}))["messages"]
            return {
                "op": op,
                "roles": [message["role"] for message in messages],
                "text": _joined([message["content"] for message in messages]),
            }
    raise ValueError(f"unknown op {op!r}")


async def _call(client: Client, step: dict[str, Any]) -> dict[str, Any]:
    seen: list[dict[str, Any]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append({"progress": progress, "message": message})

    extra = {"progress": seen} if step.get("progress") else {}
    try:
        result = await client.call(
            step["name"],
            step.get("arguments") or {},
            step.get("timeout_s"),
            on_progress if step.get("progress") else None,
        )
    except Exception as error:
        return _failure("call", error) | extra
    return {
        "op": "call",
        "isError": result.get("isError", False),
        "text": _joined(result.get("content", [])),
        "structured": result.get("structuredContent"),
    } | extra


def _joined(blocks: list[dict[str, Any]]) -> str:
    return "\n".join(block["text"] for block in blocks if "text" in block)


def _failure(op: str, error: BaseException) -> dict[str, Any]:
    return {"op": op, **_cause(error)}


def _cause(error: BaseException) -> dict[str, Any]:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    remote = getattr(error, "error", None)
    if getattr(remote, "code", None) == URL_ELICITATION_REQUIRED:
        asked.extend(question["url"] for question in remote.data["elicitations"])
    message = getattr(remote, "message", None) or str(error) or type(error).__name__
    return {
        "error": message,
        "code": getattr(remote, "code", None),
        "status": getattr(getattr(error, "response", None), "status_code", None),
        "kind": type(error).__name__,
    }


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=_answers, flush=True)
