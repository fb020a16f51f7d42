"""An MCP server that behaves as servers may: it changes its tools, says too much, and goes away.

It speaks over its input and output, or with two arguments at that address and port; with a third one, this is a token that it asks
for.
"""

import os
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("changing")


@server.tool()
async def learn(name: str, ctx: Context) -> str:
    """Offers another tool from now on."""
    server.add_tool(lambda: f"this is {name}", name=name, description="Learnt.")
    await ctx.session.send_tool_list_changed()
    return "learnt"


@server.tool()
def shout(count: int) -> str:
    """Says one letter many times."""
    return "x" * count


@server.tool()
def leave() -> str:
    """Ends the server without an answer."""
    os._exit(1)


@server.tool()
def surroundings() -> dict[str, str]:
    """The environment of the server."""
    return dict(os.environ)


def guarded(app, token: str):
    """The app for those who bring the token."""

    async def answer(scope, receive, send):
        brought = dict(scope.get("headers", [])).get(b"authorization")
        if scope["type"] != "http" or brought == f"Bearer {token}".encode():
            return await app(scope, receive, send)
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    return answer


if len(sys.argv) == 4:
    app = guarded(server.streamable_http_app(host=sys.argv[1]), sys.argv[3])
    uvicorn.run(app, host=sys.argv[1], port=int(sys.argv[2]), log_level="warning")
elif len(sys.argv) == 3:
    server.run("streamable-http", host=sys.argv[1], port=int(sys.argv[2]))
else:
    server.run()
