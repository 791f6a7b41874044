"""A handler can say that what a template names is not there; each revision has its own code for that."""

from __future__ import annotations

import pytest

from tests.support import run_async
from trunkline import Client, Context, RequestFailed, Server
from trunkline.errors import ResourceNotFound


@pytest.mark.parametrize(
    ("revision", "code"),
    [pytest.param("2025-06-18", -32002, id="handshake"), pytest.param("2026-07-28", -32602, id="stateless")],
)
def test_resource_not_found_has_the_error_code_of_the_revision(revision: str, code: int) -> None:
    server = Server("library")

    @server.resource("book://{title}")
    async def book(title: str) -> str:
        """Find no book."""
        raise ResourceNotFound(f"No book is called {title!r}")

    async def main() -> RequestFailed:
        async with Client(server, revision=revision) as client:
            with pytest.raises(RequestFailed, match="No book is called 'momo'") as caught:
                await client.read_resource("book://momo")
            return caught.value

    error = run_async(main())
    assert (error.code, error.message, error.data) == (code, "No book is called 'momo'", {"uri": "book://momo"})


def test_a_context_shows_the_exchange_behind_it() -> None:
    server = Server("library")

    @server.resource("book://{title}")
    async def book(title: str, ctx: Context) -> str:
        """Return the requested URI."""
        uri: str = ctx.exchange.admitted.params.uri
        return uri

    async def main() -> str | None:
        async with Client(server) as client:
            return (await client.read_resource("book://momo"))[0].text

    assert run_async(main()) == "book://momo"
