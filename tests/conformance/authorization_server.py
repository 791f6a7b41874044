"""The authorization server that the official conformance suite looks at: ``authorization_server.py --port N``.

It stands beside an MCP endpoint, as it does for users. Its issuer is the address it listens at, byte for byte. Without
``--auto-consent`` it asks, with the development user; with it, the runner can follow a link instead of a person.
"""

from __future__ import annotations

import argparse

from trunkline import Server
from trunkline.auth import AuthorizationServer, OAuthClient

__all__ = ["CLIENT_ID", "main", "make_server"]

CLIENT_ID = "conformance"


def make_server(port: int, *, auto_consent: bool) -> Server:
    """Make a server that issues its own tokens."""
    client = OAuthClient(
        client_id=CLIENT_ID,
        client_name="Conformance suite",
        # At whichever port it waits.
        redirect_uris=("http://127.0.0.1/callback",),
    )
    issuer = f"http://127.0.0.1:{port}"
    auth = AuthorizationServer(
        issuer=issuer,
        scopes={"greet": "Greet you by name"},
        clients=[client],
        auto_approve="tester" if auto_consent else None,
    )
    server = Server("authorization under test", version="1.0.0", auth=auth)

    @server.tool(scopes=["greet"])
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello, {name}!"

    return server


def main() -> None:
    """Serve on a port of this machine until told to stop."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--auto-consent", action="store_true", help="allow everything without asking")
    given = parser.parse_args()
    make_server(given.port, auto_consent=given.auto_consent).run("http", port=given.port)


if __name__ == "__main__":
    main()
