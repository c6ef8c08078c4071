"""Driver for the Python SDK of the second generation: `mcp` 2.x, which probes for the modern era."""

from contextlib import asynccontextmanager

import mcp
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

import steps


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
    url, token = steps.arguments()
    async with create_mcp_http_client(headers=steps.bearer(token)) as http:
        async with mcp.Client(streamable_http_client(url, http_client=http)) as client:
            yield Connected(client)


steps.drive(connect)
