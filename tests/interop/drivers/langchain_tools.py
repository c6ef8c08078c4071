"""Driver for langchain-mcp-adapters: an MCP tool as a LangChain tool, each call in a session of its own.

The library lists tools and calls them; it tells neither the revision nor the instructions.
"""

from contextlib import asynccontextmanager
from datetime import timedelta

from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient

import steps


class Connected:
    protocol = instructions = None

    def __init__(self, url, token):
        self.connection = {"transport": "http", "url": url, "headers": steps.bearer(token)}
        self.listed = []

    async def tools(self, fresh):
        self.listed = await self._tools(self.connection, None)
        return [{"name": tool.name} for tool in self.listed]

    async def _tools(self, connection, on_progress):
        async def told(progress, total, message, context):
            await on_progress(progress, total, message)

        callbacks = Callbacks(on_progress=told) if on_progress else None
        return await MultiServerMCPClient({"gw": connection}, callbacks=callbacks).get_tools()

    async def call(self, name, arguments, timeout_s, on_progress):
        connection = dict(self.connection)
        if timeout_s is not None:
            connection["session_kwargs"] = {"read_timeout_seconds": timedelta(seconds=timeout_s)}
        usual = timeout_s is None and on_progress is None
        tools = self.listed if usual else await self._tools(connection, on_progress)
        tool = next(tool for tool in tools if tool.name == name)
        request = {"type": "tool_call", "id": "call_1", "name": name, "args": arguments}
        message = await tool.ainvoke(request)
        content = message.content
        return {
            "isError": message.status == "error",
            "content": [{"type": "text", "text": content}] if isinstance(content, str) else content,
            "structuredContent": (message.artifact or {}).get("structured_content"),
        }


@asynccontextmanager
async def connect():
    client = Connected(*steps.arguments())
    await client.tools(fresh=True)
    yield client


steps.drive(connect)
