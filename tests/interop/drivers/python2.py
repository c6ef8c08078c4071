"""Driver for the Python SDK of the second generation: `mcp` 2.x, which probes for the modern era.

`urls=ACTION` declares that its user can open URLs and answers so when asked to; `tasks=poll` declares
the extension of tasks, for which the SDK has a place and nothing that polls.
"""

from contextlib import asynccontextmanager

from typing import Any, ClassVar, Literal

import anyio
import mcp
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import CallToolResult, ElicitResult, Request, RequestParams, Result

import steps


class Task(Result):
    result_type: Literal["task"] = "task"
    task_id: str
    poll_interval_ms: int | None = None


class TaskState(Result):
    status: str
    result: dict[str, Any] | None = None
    poll_interval_ms: int | None = None


class TaskParams(RequestParams):
    task_id: str


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    # What goes into the header `Mcp-Name`.
    name_param: ClassVar[str | None] = "taskId"


class Tasks(ClientExtension):
    identifier = "io.modelcontextprotocol/tasks"

    def claims(self):
        return [ResultClaim(result_type="task", model=Task, resolve=self.poll)]

    async def poll(self, task, context):
        interval_ms = task.poll_interval_ms
        while True:
            await anyio.sleep((interval_ms or 1000) / 1000)
            request = GetTask(params=TaskParams(task_id=task.task_id))
            state = await context.session.send_request(request, TaskState)
            if state.status == "completed":
                return CallToolResult.model_validate(state.result)
            if state.status != "working":
                raise RuntimeError(f"the task is {state.status}")
            interval_ms = state.poll_interval_ms


class Connected:
    def __init__(self, client: mcp.Client):
        self.client = client
        self.protocol = client.protocol_version
        self.instructions = client.session.instructions

    async def tools(self, fresh):
        return await steps.pages(self._pager(self.client.list_tools, fresh), "tools")

    async def resources(self, fresh):
        return await steps.pages(self._pager(self.client.list_resources, fresh), "resources")

    async def prompts(self, fresh):
        return await steps.pages(self._pager(self.client.list_prompts, fresh), "prompts")

    def _pager(self, method, fresh):
        return lambda cursor: method(cursor=cursor, cache_mode="refresh" if fresh else "use")

    async def call(self, name, arguments, timeout_s, on_progress):
        result = await self.client.call_tool(
            name, arguments, read_timeout_seconds=timeout_s, progress_callback=on_progress
        )
        return steps.wire(result)

    async def read(self, uri):
        return steps.wire(await self.client.read_resource(uri))

    async def prompt(self, name, arguments):
        return steps.wire(await self.client.get_prompt(name, arguments))


@asynccontextmanager
async def connect():
    given = steps.settings(urls="", tasks="")
    url, token = steps.arguments()

    async def on_elicitation(context, question):
        steps.asked.append(question.url)
        return ElicitResult(action=given["urls"])

    more = {
        "elicitation_callback": on_elicitation if given["urls"] else None,
        "extensions": [Tasks()] if given["tasks"] else None,
    }
    async with create_mcp_http_client(headers=steps.bearer(token)) as http:
        async with mcp.Client(streamable_http_client(url, http_client=http), **more) as client:
            yield Connected(client)


steps.drive(connect)
