"""The API client of the reference servers: bounds, rate limits, and where credentials never go."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support import run_async
from trunkline import ConfigError, ToolError
from trunkline_servers.api_client import ApiClient, ApiError, ApiResponse, RawBody

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def service(handler: Handler, **options: Any) -> AsyncIterator[ApiClient]:
    """Run a service that answers everything with one function."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with ApiClient(
            f"http://127.0.0.1:{port}", service="Sample", headers={"Authorization": "secret"}, **options
        ) as api:
            yield api
    finally:
        await runner.cleanup()


def asked(handler: Handler, *request: Any, options: dict[str, Any] | None = None, **more: Any) -> ApiResponse:
    async def main() -> ApiResponse:
        async with service(handler, **(options or {})) as api:
            return await api.request(*request, **more)

    return run_async(main())


async def echo(request: web.Request) -> web.Response:
    body = await request.read()
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "body": body.decode(),
            "type": request.headers.get("content-type"),
            "token": request.headers.get("authorization"),
            "encodings": request.headers.get("accept-encoding"),
        }
    )


def failing(status: int, value: Any = None, **headers: str) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(value, status=status, headers={n.replace("_", "-"): v for n, v in headers.items()})

    return answer


def test_a_request_carries_query_body_and_credentials_and_asks_for_nothing_compressed() -> None:
    said = asked(
        echo, "POST", "/a/b", query={"page": 2, "flag": True, "none": None, "t": ["x", "y"]}, body={"k": 1}
    ).json()

    assert said == {
        "method": "POST",
        "path": "/a/b?page=2&flag=true&t=x&t=y",
        "body": '{"k":1}',
        "type": "application/json",
        "token": "secret",
        "encodings": "identity",
    }


def test_a_body_that_is_not_json_is_sent_unchanged() -> None:
    said = asked(echo, "PUT", "/", body=RawBody(b"a=1", "application/x-www-form-urlencoded")).json()
    assert (said["body"], said["type"]) == ("a=1", "application/x-www-form-urlencoded")


def test_a_path_is_made_of_quoted_segments() -> None:
    api = ApiClient("https://api.example.com", service="Sample")
    assert api.path("repos", "a/b", "c?d#e", 7) == "/repos/a%2Fb/c%3Fd%23e/7"


@pytest.mark.parametrize("segment", ["", ".", "..", "a\nb", "a\x00", "\ud800"])
def test_a_segment_that_leads_elsewhere_is_refused(segment: str) -> None:
    with pytest.raises(ToolError, match="cannot be a URL path segment"):
        ApiClient("https://api.example.com", service="Sample").path(segment)


@pytest.mark.parametrize(
    "base",
    [
        "ftp://a.example",
        "a.example",
        "https://",
        "https://a.example?x=1",
        "https://u:p@a.example",
        "https://[",
        "https://a.example:port",
        "https://a.example:99999",
        "https://a b",
    ],
)
def test_an_invalid_address_is_refused(base: str) -> None:
    with pytest.raises(ConfigError, match="The address of Sample"):
        ApiClient(base, service="Sample")


def test_the_services_own_words_are_on_one_line() -> None:
    with pytest.raises(ApiError, match=r"^Sample answered 422: Validation failed here$") as caught:
        asked(failing(422, {"message": "Validation\n\x1b failed here"}), "POST", "/")
    assert caught.value.status == 422


def test_a_status_that_is_awaited_is_an_answer() -> None:
    assert asked(failing(404, {}), "GET", "/", accept_status=(404,)).status == 404


def test_a_response_that_is_not_json_is_reported() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    with pytest.raises(ApiError, match=r"that is not JSON$"):
        asked(answer, "GET", "/").json()
    with pytest.raises(ApiError, match=r"that is not JSON; it is not known whether it was done"):
        asked(answer, "POST", "/").json()


@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_too_deep_to_be_read_is_reported(status: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b'{"message":' * 100_000, status=status)

    with pytest.raises(ApiError, match=r"is not JSON|^Sample answered 400$"):
        asked(answer, "GET", "/").json()


async def hanging(request: web.Request) -> web.Response:
    await asyncio.sleep(30)
    return web.Response()


async def hanging_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def raw(content: bytes, *, reset: bool = False) -> Handler:
    """Answer with these bytes and nothing behind them, and close or reset the connection."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        transport.write(content)
        if reset:
            linger = struct.pack("ii", 1, 0)
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            transport.abort()
        transport.close()
        return web.Response()

    return answer


async def large(request: web.Request) -> web.Response:
    return web.Response(body=b"x" * 4096)


async def compressed(request: web.Request) -> web.Response:
    return web.Response(body=b"", headers={"content-encoding": "gzip"})


LOST = [
    pytest.param(hanging, id="no answer"),
    pytest.param(hanging_up, id="hung up"),
    pytest.param(raw(b"", reset=True), id="reset"),
    pytest.param(raw(b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{"), id="torn"),
    pytest.param(raw(b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{", reset=True), id="torn by a reset"),
    pytest.param(raw(b"nonsense\r\n\r\n"), id="no HTTP"),
    pytest.param(large, id="too large"),
    pytest.param(compressed, id="compressed"),
]


@pytest.mark.parametrize("answer", LOST)
def test_a_change_without_a_response_may_have_been_made_and_the_error_does_not_advise_a_retry(answer: Handler) -> None:
    with pytest.raises(ApiError, match="it is not known whether it was done: check before you try again") as caught:
        asked(answer, "POST", "/", body={}, options={"seconds": 2 if answer is not hanging else 0.2, "max_bytes": 1024})
    said = str(caught.value)
    assert ("try again later" in said, "cannot be reached" in said, "ask for less" in said) == (False, False, False)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(hanging, r"did not answer within 0\.2 seconds", id="no answer"),
        pytest.param(hanging_up, "closed the connection before it answered", id="hung up"),
        pytest.param(large, "larger than 1024 bytes", id="too large"),
        pytest.param(compressed, "compressed", id="compressed"),
    ],
)
def test_a_failed_read_is_not_reported_as_possibly_done(answer: Handler, words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        asked(answer, "GET", "/", options={"seconds": 0.2, "max_bytes": 1024})
    assert "whether it was done" not in str(caught.value)


async def test_a_request_that_is_under_way_when_the_client_is_closed_is_not_sent_again() -> None:
    arrived = asyncio.Queue[None]()

    async def answer(request: web.Request) -> web.Response:
        arrived.put_nowait(None)
        return await hanging(request)

    async with service(answer) as api:
        asking = asyncio.ensure_future(api.request("GET", "/"))
        await arrived.get()
        await api.aclose()
        with pytest.raises(ApiError, match="closed the connection before it answered"):
            await asking
    assert arrived.qsize() == 0


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_that_never_left_was_not_carried_out(method: str) -> None:
    async with ApiClient("http://127.0.0.1:1", service="Sample") as api:
        with pytest.raises(ApiError) as caught:
            await api.request(method, "/")
    reason = "(Connection refused): check its address, and the network"
    assert str(caught.value) == f"Sample cannot be reached at 127.0.0.1:1 {reason}"


def test_a_missing_library_is_reported_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ConfigError, match=r"pip install 'trunkline\[servers\]'"):
        ApiClient("https://api.example.com", service="Sample")


async def test_a_service_without_tls_is_reported_as_such() -> None:
    async with service(echo) as api, ApiClient(api.base.replace("http", "https"), service="Sample") as safe:
        with pytest.raises(ApiError, match=r"cannot be reached at 127\.0\.0\.1:\d+ \(.*SSL"):
            await safe.request("GET", "/")


async def test_a_unix_socket_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    async with ApiClient("http://engine", service="Engine", unix_socket=str(path)) as api:
        with pytest.raises(ApiError, match=r"engine\.sock"):
            await api.request("GET", "/")


async def test_cookies_set_by_a_service_are_not_kept() -> None:
    async def answer(request: web.Request) -> web.Response:
        reply = web.json_response({"cookie": request.headers.get("cookie")})
        reply.set_cookie("session", "of somebody else")
        return reply

    async with (
        service(answer) as api,
        ApiClient(api.base.replace("127.0.0.1", "localhost"), service="Sample") as named,
    ):
        await named.request("GET", "/")
        assert (await named.request("GET", "/")).json() == {"cookie": None}


# --- redirects -------------------------------------------------------------------------------------------------------


def redirecting(to: str) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/there":
            return await echo(request)
        return web.Response(status=302, headers={"location": to})

    return answer


def test_a_redirect_within_the_service_is_followed() -> None:
    assert asked(redirecting("/there"), "GET", "/").json()["path"] == "/there"


def test_credentials_never_follow_a_redirect_elsewhere() -> None:
    with pytest.raises(ApiError, match="redirects to another host"):
        asked(redirecting("http://127.0.0.2:1/there"), "GET", "/")


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_change_that_is_redirected_was_not_made(method: str) -> None:
    with pytest.raises(ApiError, match=r"redirects .* nothing was changed") as caught:
        asked(redirecting("/there"), method, "/")
    assert caught.value.status == 302


@pytest.mark.parametrize("status", [300, 303, 304])
def test_a_redirect_without_a_target_is_an_error(status: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status)

    with pytest.raises(ApiError, match=f"^Sample answered {status}"):
        asked(answer, "GET", "/")


async def test_the_same_origin_in_other_letters_is_the_same() -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/there":
            return await echo(request)
        return web.Response(status=302, headers={"location": f"HTTP://LOCALHOST:{request.url.port}/there"})

    async with (
        service(answer) as api,
        ApiClient(api.base.replace("127.0.0.1", "localhost"), service="Sample") as named,
    ):
        assert (await named.request("GET", "/")).json()["path"] == "/there"


def test_redirects_without_end_are_cut() -> None:
    with pytest.raises(ApiError, match="redirects more than 3 times"):
        asked(redirecting("/again"), "GET", "/")


# --- rate limits -----------------------------------------------------------------------------------------------------


def limited(times: int, **headers: str) -> tuple[Handler, list[str]]:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.method)
        if len(seen) <= times:
            return web.json_response({"message": "slow down"}, status=429, headers=headers)
        return web.json_response({"ok": True})

    return answer, seen


def test_a_short_rate_limit_is_waited_for_once() -> None:
    answer, seen = limited(1, **{"retry-after": "0"})
    assert asked(answer, "GET", "/").json() == {"ok": True}
    assert seen == ["GET", "GET"]


def test_a_change_is_never_sent_twice() -> None:
    answer, seen = limited(1, **{"retry-after": "0"})
    with pytest.raises(ApiError, match="rate limit is reached: try again in 0 seconds"):
        asked(answer, "POST", "/")
    assert seen == ["POST"]


def test_a_long_rate_limit_says_when_to_try_again() -> None:
    answer, seen = limited(9, **{"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()) + 1800)})
    with pytest.raises(ApiError, match=r"try again in (29|30) minutes"):
        asked(answer, "GET", "/")
    assert seen == ["GET"]


@pytest.mark.parametrize("given", ["soon", "-1", "9" * 400, "²"])
def test_a_rate_limit_that_makes_no_sense_is_a_plain_failure(given: str) -> None:
    with pytest.raises(ApiError, match=r"^Sample answered 429: wait$") as caught:
        asked(failing(429, {"message": "wait"}, retry_after=given), "GET", "/")
    assert caught.value.retry_after is None


@pytest.mark.parametrize("reset", ["soon", "9" * 400, "²"])
def test_an_end_of_a_rate_limit_that_makes_no_sense_is_a_plain_failure(reset: str) -> None:
    with pytest.raises(ApiError, match=r"^Sample answered 403: wait$"):
        asked(
            failing(403, {"message": "wait"}, x_ratelimit_remaining="0", x_ratelimit_reset=reset),
            "GET",
            "/",
        )


def test_a_service_that_is_temporarily_down_is_not_reported_as_rate_limited() -> None:
    with pytest.raises(ApiError, match=r"^Sample answered 503: Try again in 100 seconds$"):
        asked(failing(503, {}, retry_after="100"), "GET", "/")


def test_a_redirect_to_nonsense_is_not_followed() -> None:
    with pytest.raises(ApiError, match="redirects to another host"):
        asked(redirecting("http://["), "GET", "/")


def test_a_refusal_is_not_taken_for_a_rate_limit() -> None:
    with pytest.raises(ApiError, match=r"^Sample answered 403: no rights$"):
        asked(failing(403, {"message": "no rights"}, **{"x-ratelimit-remaining": "12"}), "GET", "/")
