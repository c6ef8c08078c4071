"""Driver for the FastMCP client, which sits on `mcp` 2.x and has its own session and time-out rules.

It keeps no cache unless one is given to it, so `fresh` changes nothing.
"""

from contextlib import asynccontextmanager

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

import steps


class Connected:
    def __init__(self, client: Client):
        self.client = client
        self.protocol = client.protocol_version
        self.instructions = client.instructions

    async def tools(self, fresh):
        return [steps.wire(tool) for tool in await self.client.list_tools()]

    async def resources(self, fresh):
        return [steps.wire(resource) for resource in await self.client.list_resources()]

    async def prompts(self, fresh):
        return [steps.wire(prompt) for prompt in await self.client.list_prompts()]

    async def call(self, name, arguments, timeout_s, on_progress):
        result = await self.client.call_tool_mcp(
            name, arguments, progress_handler=on_progress, timeout=timeout_s
        )
        return steps.wire(result)

    async def read(self, uri):
        return steps.wire(await self.client.read_resource_mcp(uri))

    async def prompt(self, name, arguments):
        return steps.wire(await self.client.get_prompt_mcp(name, arguments))


@asynccontextmanager
async def connect():
    url, token = steps.arguments()
    async with Client(StreamableHttpTransport(url, auth=token)) as client:
        yield Connected(client)


steps.drive(connect)
