"""The consent page in a real browser: forms, cookies, redirects and policies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.auth.authorization_server.chromium import Page, chromium, needs_chromium
from tests.auth.authorization_server.support import (
    OWN_RECORDS,
    PASSWORD,
    Documents,
    authorize_url,
    make_server,
    register,
)
from tests.auth.served import free_port, served
from trunkline import Server
from trunkline.auth.authorization_server.oauth_proxy import OAuthProxy
from trunkline.auth.authorization_server.server import AuthorizationServer

pytestmark = [needs_chromium, OWN_RECORDS]

Message = MutableMapping[str, Any]


class Site:
    """A small third-party site: the requests it got, and its answers by path."""

    def __init__(self, **pages: tuple[int, str]) -> None:
        self.pages = pages
        self.visited: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        query = dict(parse_qsl(scope["query_string"].decode()))
        status, text = self.pages.get(scope["path"].strip("/"), (404, "nothing"))
        headers = [(b"content-type", b"text/html")]
        if status == 303:
            target = f"{query['redirect_uri']}?{urlencode({'code': 'upstream-code', 'state': query['state']})}"
            headers.append((b"location", target.encode()))
        if status != 404:
            self.visited.put_nowait(query)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    async def drain(self, seconds: float) -> None:
        """Do nothing."""


class Scene:
    """A browser, an authorization server and the client that waits for the answer."""

    def __init__(self, page: Page, server: AuthorizationServer, issuer: str, client: Site, callback: str) -> None:
        self.page = page
        self.server = server
        self.issuer = issuer
        self.client = client
        self.callback = callback

    async def link(self, **metadata: Any) -> str:
        """Register a client, and give the address it sends a person to."""
        known = await register(self.server, self.issuer, redirect_uris=[self.callback], **metadata)
        return authorize_url(known["client_id"], self.issuer, redirect_uri=self.callback, resource=None)

    async def answer(self) -> dict[str, str]:
        return await self.client.visited.get()


@asynccontextmanager
async def playing(folder: Path, make: Callable[..., AuthorizationServer] = make_server) -> AsyncIterator[Scene]:
    """Serve an authorization server and a client, and open a browser."""
    port, callback_port = free_port(), free_port()
    issuer = f"http://127.0.0.1:{port}"
    server = make(issuer=issuer)
    client = Site(callback=(200, "Welcome back"))
    async with (
        served(Server("library", auth=server).asgi(), port),
        served(client, callback_port),
        chromium(folder / "profile") as page,
    ):
        yield Scene(page, server, issuer, client, f"http://127.0.0.1:{callback_port}/callback")


async def test_a_user_signs_in_consents_and_is_redirected_and_stays_signed_in(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        page, link = scene.page, await scene.link()
        await page.open(link)
        shown = await page.text()
        assert "Notes asks for access" in shown
        assert "Read your files" in shown
        assert urlsplit(scene.callback).netloc in shown
        await page.type("name", "ada")
        await page.type("password", "wrong")
        await page.click("Allow")
        await page.until("document.body.innerText.includes('Wrong name or password')")
        await page.type("name", "ada")
        await page.type("password", PASSWORD)
        await page.enter()
        answer = await scene.answer()
        assert set(answer) == {"code", "state", "iss"}
        assert (answer["state"], answer["iss"]) == ("st4te", scene.issuer)
        await page.until("document.body.innerText.includes('Welcome back')")
        await page.open(link)
        assert "Signed in as ada" in await page.text()
        await page.click("Allow")
        assert "code" in await scene.answer()


async def test_denying_needs_no_password(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        await scene.page.open(await scene.link())
        await scene.page.click("Deny")
        assert (await scene.answer())["error"] == "access_denied"


async def test_the_page_runs_no_script_hides_its_cookie_and_cannot_be_framed(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        name = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
        page, link = scene.page, await scene.link(client_name=name)
        await page.open(link)
        assert "<script>document.title='owned'</script>" in await page.text()
        assert await page.run("document.title") != "owned"
        assert await page.run("document.querySelectorAll('img, script').length") == 0
        assert await page.run("getComputedStyle(document.querySelector('.host')).fontWeight") == "600"
        assert await page.run("document.cookie") == ""
        cookies = (await page.command("Network.getCookies", urls=[scene.issuer]))["cookies"]
        assert [(each["httpOnly"], each["sameSite"]) for each in cookies] == [(True, "Lax")]
        scene.client.pages["frame"] = (200, f'<iframe id="f" src="{link.replace("&", "&amp;")}"></iframe>')
        await page.open(scene.callback.replace("/callback", "/frame"))
        assert (await page.frame()).startswith("chrome-error:")


async def test_a_user_signs_in_at_the_provider_of_a_proxy(tmp_path: Path) -> None:
    provider_port = free_port()
    provider = Site(authorize=(303, ""))
    answers = Documents(
        {f"http://127.0.0.1:{provider_port}/token": {"access_token": "t"}, "https://p.example/user": {"sub": "u-1"}}
    )

    def make(issuer: str) -> OAuthProxy:
        return OAuthProxy(
            issuer=issuer,
            upstream_authorize=f"http://127.0.0.1:{provider_port}/authorize",
            upstream_token=f"http://127.0.0.1:{provider_port}/token",
            upstream_userinfo="https://p.example/user",
            upstream_fetcher=answers,
            client_id="our-id",
            client_secret="our-secret",
            scopes={"files:read": "Read your files"},
        )

    async with playing(tmp_path, make) as scene, served(provider, provider_port):
        link = await scene.link()
        await scene.page.open(link)
        assert provider.visited.empty()
        assert re.search(rf"You will sign in at 127\.0\.0\.1:{provider_port}", await scene.page.text())
        await scene.page.click("Allow")
        assert "code" in await scene.answer()
        await scene.page.until("document.body.innerText.includes('Welcome back')")
        # Opened by the person themselves, it is not asked again; led to by another site, it is.
        await scene.page.open(link)
        assert "code" in await scene.answer()
        other = f"http://localhost:{provider_port}"
        provider.pages["lure"] = (200, f'<a id="a" href="{link.replace("&", "&amp;")}">x</a>')
        await scene.page.open(f"{other}/lure")
        await scene.page.run("document.getElementById('a').click()")
        await scene.page.until("document.body.innerText.includes('asks for access')")
        assert scene.client.visited.empty()
