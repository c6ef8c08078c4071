"""The API side of the rig: three vendor APIs to and from the playbook's Ask, Say and Use.

Each dialect has `read(body) -> Ask` and `write(ask, moves) -> (content type, bytes)`.
"""

import json

from playbook import Ask, Outcome, Say, Tool, Use

JSON, EVENTS = "application/json", "text/event-stream"


def flat(content):
    """The text of a content value: a string, a block, or a list of blocks."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(flat, content)))
    if isinstance(content, dict):
        for key in ("text", "content", "output"):
            if key in content:
                return flat(content[key])
    return json.dumps(content)


def _plain(value):
    return JSON, json.dumps(value).encode()


def _events(items, named=True, tail=""):
    head = (lambda e: f"event: {e['type']}\n") if named else (lambda e: "")
    return EVENTS, ("".join(f"{head(e)}data: {json.dumps(e)}\n\n" for e in items) + tail).encode()


class Messages:
    """Anthropic Messages API."""

    @staticmethod
    def read(body):
        messages = body.get("messages") or []
        blocks = [b for m in messages if isinstance(m.get("content"), list) for b in m["content"]]
        return Ask(
            opening=flat(body.get("system")) + "\n" + (flat(messages[0].get("content")) if messages else ""),
            tools=[Tool(t["name"]) for t in body.get("tools") or [] if t.get("name")],
            outcomes=[Outcome(b.get("tool_use_id", ""), flat(b.get("content")))
                      for b in blocks if b.get("type") == "tool_result"],
            stream=bool(body.get("stream")),
            model=body.get("model", "scripted"))

    @classmethod
    def write(cls, ask, moves):
        blocks = [cls._block(m) for m in moves]
        reason = "tool_use" if any(isinstance(m, Use) for m in moves) else "end_turn"
        whole = {"id": "msg_0", "type": "message", "role": "assistant", "model": ask.model, "content": blocks,
                 "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
        if not ask.stream:
            return _plain(whole)
        events = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
        for index, block in enumerate(blocks):
            events += cls._pieces(index, block)
        events.append({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
                       "usage": {"output_tokens": 1}})
        events.append({"type": "message_stop"})
        return _events(events)

    @staticmethod
    def _block(move):
        if isinstance(move, Say):
            return {"type": "text", "text": move.text}
        return {"type": "tool_use", "id": "toolu_" + move.call_id, "name": move.tool.wire, "input": move.args}

    @staticmethod
    def _pieces(index, block):
        """A block travels empty first, then its text or its input follows as a delta."""
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        return [{"type": "content_block_start", "index": index, "content_block": empty},
                {"type": "content_block_delta", "index": index, "delta": delta},
                {"type": "content_block_stop", "index": index}]


class Responses:
    """OpenAI Responses API, streaming only, with Codex's tool namespaces."""

    @classmethod
    def read(cls, body):
        given = body.get("input")
        items = [i for i in given if isinstance(i, dict)] if isinstance(given, list) else []
        first = []
        for item in items:
            if item.get("role") not in ("user", "developer", "system"):
                break
            first.append(flat(item.get("content")))
        return Ask(
            opening="\n".join([flat(body.get("instructions")), given if isinstance(given, str) else "", *first]),
            tools=[t for spec in body.get("tools") or [] for t in cls._tools(spec)],
            outcomes=[Outcome(i.get("call_id", ""), flat(i.get("output")))
                      for i in items if i.get("type", "").endswith("_call_output")],
            model=body.get("model", "scripted"))

    @staticmethod
    def _tools(spec):
        if spec.get("type") == "namespace":
            return [Tool(t["name"], spec["name"]) for t in spec.get("tools") or []]
        return [Tool(spec["name"])] if spec.get("name") else []

    @classmethod
    def write(cls, ask, moves):
        output = [cls._item(n, m) for n, m in enumerate(moves)]
        usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1,
                 "output_tokens_details": None, "total_tokens": 2}
        return _events([
            {"type": "response.created", "response": {"id": "resp_0"}},
            *({"type": "response.output_item.done", "output_index": n, "item": i} for n, i in enumerate(output)),
            {"type": "response.completed", "response": {"id": "resp_0", "output": output, "usage": usage}}])

    @staticmethod
    def _item(n, move):
        if isinstance(move, Say):
            return {"type": "message", "id": f"msg_{n}", "role": "assistant",
                    "content": [{"type": "output_text", "text": move.text}]}
        item = {"type": "function_call", "id": "fc_" + move.call_id, "call_id": "call_" + move.call_id,
                "name": move.tool.wire, "arguments": json.dumps(move.args)}
        return {**item, "namespace": move.tool.space} if move.tool.space else item


class Chat:
    """OpenAI Chat Completions API."""

    @staticmethod
    def read(body):
        messages = body.get("messages") or []
        first = []
        for m in messages:
            if m.get("role") not in ("system", "developer", "user"):
                break
            first.append(flat(m.get("content")))
        return Ask(
            opening="\n".join(first),
            tools=[Tool(t["function"]["name"]) for t in body.get("tools") or [] if "function" in t],
            outcomes=[Outcome(m.get("tool_call_id", ""), flat(m.get("content")))
                      for m in messages if m.get("role") == "tool"],
            stream=bool(body.get("stream")),
            model=body.get("model", "scripted"))

    @staticmethod
    def write(ask, moves):
        said = "".join(m.text for m in moves if isinstance(m, Say))
        uses = [{"index": n, "id": "call_" + m.call_id, "type": "function",
                 "function": {"name": m.tool.wire, "arguments": json.dumps(m.args)}}
                for n, m in enumerate(m for m in moves if isinstance(m, Use))]
        message = {"role": "assistant", "content": said or None, **({"tool_calls": uses} if uses else {})}
        reason, usage = "tool_calls" if uses else "stop", {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        base = {"id": "chat_0", "created": 0, "model": ask.model}
        if not ask.stream:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return _plain({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
        base["object"] = "chat.completion.chunk"
        return _events([{**base, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
                        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}],
                       named=False, tail="data: [DONE]\n\n")


def for_path(path):
    """The dialect an API path belongs to, or None."""
    for ending, dialect in (("/messages", Messages), ("/responses", Responses), ("/chat/completions", Chat)):
        if path.endswith(ending):
            return dialect
    return None
