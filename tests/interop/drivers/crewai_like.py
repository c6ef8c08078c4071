"""A client with the rules of CrewAI 1.15.30, without its 100 other packages: `mcp` 1.x, 30 s a call
whatever arrives, up to three attempts, 1 s and 2 s apart, and a client of its own for each call.

`sessions=call` makes all attempts in the session of the call, as its `MCPServerHTTP` servers do;
`sessions=attempt` opens one for each, as its tools from a plain URL do. `name=…` is `clientInfo.name`,
which CrewAI leaves at the name of the SDK.
"""

import asyncio
from contextlib import asynccontextmanager

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

import steps

LIMIT_S = 30
ATTEMPTS = 3


class Connected:
    instructions = None

    def __init__(self, url, token, sessions, name):
        self.url, self.token, self.per_attempt = url, token, sessions == "attempt"
        self.info = types.Implementation(name=name, version="1") if name else None
        self.protocol = None

    @asynccontextmanager
    async def session(self):
        async with create_mcp_http_client(headers=steps.bearer(self.token)) as http:
            async with streamable_http_client(self.url, http_client=http) as (read, write, _):
                async with ClientSession(read, write, client_info=self.info) as session:
                    self.protocol = str((await session.initialize()).protocolVersion)
                    yield session

    async def tools(self, fresh):
        async with self.session() as session:
            return steps.wire(await session.list_tools())["tools"]

    async def call(self, name, arguments, timeout_s, on_progress):
        limit = LIMIT_S if timeout_s is None else timeout_s
        if self.per_attempt:
            return await self._attempts(lambda: self._alone(name, arguments), limit)
        async with self.session() as session:
            return await self._attempts(lambda: session.call_tool(name, arguments), limit)

    async def _alone(self, name, arguments):
        async with self.session() as session:
            return await session.call_tool(name, arguments)

    async def _attempts(self, attempt, limit):
        for number in range(ATTEMPTS):
            try:
                return steps.wire(await asyncio.wait_for(attempt(), timeout=limit))
            except asyncio.TimeoutError:
                if number == ATTEMPTS - 1:
                    raise ConnectionError(f"Operation timed out after {limit} seconds") from None
                await asyncio.sleep(2**number)


@asynccontextmanager
async def connect():
    settings = steps.settings(sessions="call", name="")
    client = Connected(*steps.arguments(), settings["sessions"], settings["name"])
    await client.tools(fresh=True)
    yield client


steps.drive(connect)
