"""Driver for the Python SDK of the first generation: `mcp` 1.x, which only knows the handshake era.

`urls=ACTION` declares that its user can open URLs. A call that needs that fails with an error that names
the URL, so the action is for servers that ask while they work.
"""

from contextlib import asynccontextmanager
from datetime import timedelta

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from pydantic import AnyUrl

import steps


class Connected:
    def __init__(self, session: ClientSession, hello: types.InitializeResult):
        self.session = session
        self.protocol = str(hello.protocolVersion)
        self.instructions = hello.instructions

    async def tools(self, fresh):
        return await steps.pages(self._pager(self.session.list_tools), "tools")

    async def resources(self, fresh):
        return await steps.pages(self._pager(self.session.list_resources), "resources")

    async def prompts(self, fresh):
        return await steps.pages(self._pager(self.session.list_prompts), "prompts")

    def _pager(self, method):
        return lambda cursor: method(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)

    async def call(self, name, arguments, timeout_s, on_progress):
        limit = None if timeout_s is None else timedelta(seconds=timeout_s)
        result = await self.session.call_tool(
            name, arguments, read_timeout_seconds=limit, progress_callback=on_progress
        )
        return steps.wire(result)

    async def read(self, uri):
        return steps.wire(await self.session.read_resource(AnyUrl(uri)))

    async def prompt(self, name, arguments):
        return steps.wire(await self.session.get_prompt(name, arguments))


@asynccontextmanager
async def connect():
    action = steps.settings(urls="")["urls"]
    url, token = steps.arguments()

    async def on_elicitation(context, question):
        steps.asked.append(question.url)
        return types.ElicitResult(action=action)

    async with create_mcp_http_client(headers=steps.bearer(token)) as http:
        async with streamable_http_client(url, http_client=http) as (read, write, _):
            callback = on_elicitation if action else None
            async with ClientSession(read, write, elicitation_callback=callback) as session:
                yield Connected(session, await session.initialize())


steps.drive(connect)
