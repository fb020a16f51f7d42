"""Names the tools of an MCP server: tools.py URL, or tools.py COMMAND ARGUMENT..."""

import asyncio
import sys

from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client


async def main(words):
    if not words[0].startswith("http://"):
        server = StdioServerParameters(command=words[0], args=words[1:])
    elif words[0].endswith("/sse"):
        server = sse_client(words[0])
    else:
        server = words[0]
    async with Client(server) as client:
        for tool in (await client.list_tools()).tools:
            print(tool.name)


asyncio.run(main(sys.argv[1:]))
