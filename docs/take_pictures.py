"""Takes the screenshots of the consent page for the docs: ``python -m docs.take_pictures``; needs Chromium."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from tests.auth.authorization_server.chromium import Page, chromium
from tests.auth.authorization_server.support import authorize_url, register
from trunkline import Limits, Server
from trunkline.auth import AuthorizationServer, hash_password

__all__ = ["main"]

PICTURES = Path(__file__).with_name("how-to") / "pictures"
ISSUER = "http://127.0.0.1:8000"
PASSWORD = "secret"


async def main() -> None:
    """Serve a library, open its pages and take screenshots."""
    auth = AuthorizationServer(
        issuer=ISSUER,
        name="The library",
        scopes={"books:read": "See which books there are", "books:lend": "Borrow books in your name"},
        users={"ada": hash_password(PASSWORD)},
    )
    started = asyncio.Event()
    server = Server("library", auth=auth, limits=Limits(drain_seconds=1))
    task = asyncio.create_task(server.run_async("http", started=lambda url: started.set()))
    await started.wait()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        async with chromium(Path(profile)) as page:
            taken = await _take(page, auth)
    task.cancel()
    await asyncio.wait([task])
    for name, picture in taken.items():
        await asyncio.to_thread((PICTURES / f"{name}.png").write_bytes, picture)


async def _take(page: Page, auth: AuthorizationServer) -> dict[str, bytes]:
    notes = await _link(auth, "Notes for Cats", "http://127.0.0.1:53682/callback")
    await page.open(notes)
    taken = {"consent": await page.picture()}
    await page.type("name", "ada")
    await page.type("password", PASSWORD)
    await page.click("Allow")
    await page.until("location.port === '53682' || document.body === null || location.href.startsWith('chrome-error')")
    await page.open(await _link(auth, "Reading Room", "https://reading-room.example/oauth/callback"))
    return {**taken, "consent-signed-in": await page.picture(dark=True)}


async def _link(auth: AuthorizationServer, name: str, callback: str) -> str:
    client: dict[str, Any] = await register(auth, ISSUER, client_name=name, redirect_uris=[callback])
    return authorize_url(client["client_id"], ISSUER, redirect_uri=callback, resource=None, scope=None)


if __name__ == "__main__":
    asyncio.run(main())
