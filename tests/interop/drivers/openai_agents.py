"""Driver for the OpenAI Agents SDK: a whole run of an agent whose model calls one tool and then ends.

So the answer is what a model would be shown, timeouts included. A server object lives as long as the
driver, as it does in an application. `retries=N` sets `max_retry_attempts`, which is 0 if it is not set.
"""

import itertools
import json
from contextlib import AsyncExitStack, asynccontextmanager

from agents import Agent, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import steps

# Traces would go to OpenAI.
set_tracing_disabled(True)

CALLS = itertools.count(1)


class OneCall(Model):
    """A model that calls `name`, and ends when it has seen what came back."""

    def __init__(self, name, arguments):
        self.name, self.arguments = name, arguments

    async def get_response(self, system_instructions, input, *args, **kwargs):
        answered = not isinstance(input, str) and any(
            item.get("type") == "function_call_output" for item in input
        )
        return ModelResponse(output=[self._end() if answered else self._call()], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError

    def _call(self):
        return ResponseFunctionToolCall(
            type="function_call",
            call_id=f"call_{next(CALLS)}",
            name=self.name,
            arguments=json.dumps(self.arguments),
        )

    def _end(self):
        text = ResponseOutputText(type="output_text", text="done", annotations=[])
        return ResponseOutputMessage(
            type="message", id="msg_1", role="assistant", status="completed", content=[text]
        )


def flagged(context):
    """What the SDK keeps from its model: whether the server called the result an error."""
    return {"isError": bool(context.is_error)}


class Connected:
    protocol = instructions = None

    def __init__(self, stack, url, token, retries):
        self.stack = stack
        self.params = {"url": url, "headers": steps.bearer(token)}
        self.retries = retries
        self.servers = {}

    async def server(self, timeout_s):
        """The server object with that time limit; None is the SDK's own, 0 is none."""
        if timeout_s not in self.servers:
            limit = {} if timeout_s is None else {"client_session_timeout_seconds": timeout_s}
            server = MCPServerStreamableHttp(
                self.params,
                name="gw",
                cache_tools_list=True,
                max_retry_attempts=self.retries,
                custom_data_extractor=flagged,
                **limit,
            )
            self.servers[timeout_s] = await self.stack.enter_async_context(server)
        return self.servers[timeout_s]

    async def tools(self, fresh):
        server = await self.server(None)
        if fresh:
            server.invalidate_tools_cache()
        return [{"name": tool.name} for tool in await server.list_tools()]

    async def call(self, name, arguments, timeout_s, on_progress):
        agent = Agent(name="interop", model=OneCall(name, arguments), mcp_servers=[await self.server(timeout_s)])
        run = await Runner.run(agent, "go")
        item = next(item for item in run.new_items if item.type == "tool_call_output_item")
        blocks = item.output if isinstance(item.output, list) else [item.output]
        return {
            "isError": (item.custom_data or {}).get("isError"),
            "content": [block if isinstance(block, dict) else {"type": "text", "text": str(block)} for block in blocks],
        }


@asynccontextmanager
async def connect():
    retries = int(steps.settings(retries="0")["retries"])
    url, token = steps.arguments()
    async with AsyncExitStack() as stack:
        client = Connected(stack, url, token, retries)
        await client.tools(fresh=False)
        yield client


steps.drive(connect)
