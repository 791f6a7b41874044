"""The bench tools on Trunkline over HTTP.

Arguments: the port; the form of answers, which it chooses by itself; and if tokens are wanted, the key to check them.
"""

import json
import sys

from benchmarks.servers.gate import GATE_AT, opened
from benchmarks.servers.trunkline_server import add, add_sync
from trunkline import Context, Limits, Server

LIMITS = Limits(connections=20_000, sessions=20_000, streams=20_000)


def make_server(key: str | None) -> Server:
    """Make the server, which lets in everybody or, given a public key, those with a token that it fits."""
    if key is None:
        return Server("bench", tools=[add, add_sync], limits=LIMITS)
    from benchmarks.servers.sign_token import AUDIENCE, ISSUER
    from trunkline import JWTVerifier

    auth = JWTVerifier(issuer=ISSUER, audience=AUDIENCE, keys=json.loads(key))
    return Server("bench", tools=[add, add_sync], limits=LIMITS, auth=auth)


server = make_server(sys.argv[3] if len(sys.argv) > 3 else None)


@server.tool
async def progress(count: int, message: str, gate: str, ctx: Context) -> bool:
    """Report progress, and say whether the gate was opened before the 100th report was made."""
    early = True
    for number in range(1, count + 1):
        if number == GATE_AT and gate:
            early = opened(gate)
        await ctx.report_progress(number, count, message or None)
    return early


@server.tool
async def change() -> bool:
    """Tell every listener that the list of tools has changed."""
    server.changed("tools")
    return True


if __name__ == "__main__":
    server.run("http", host="127.0.0.1", port=int(sys.argv[1]), path="/mcp")
