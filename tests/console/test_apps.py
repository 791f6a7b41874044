"""Views of MCP Apps in the console: what a page may do, what is asked, and what the second origin serves."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from examples.weather_app.server import PANEL, make_server
from tests.console.support import ApiClient, OpenConsole, on_console, policy, refused
from tests.console.test_chat import ended, script
from trunkline import Server
from trunkline.console import apps
from trunkline.console.api.apps import AppsPart
from trunkline.extensions import AppCsp
from trunkline.host.config.model import ServerEntry, Source

HTML = "<!doctype html><title>Panel</title>"
ALLOW = policy('[[rule]]\neffect = "allow"\nserver = "w"\n')


def panel(**declared: Any) -> Server:
    """A server with a page, tools for it, and one that is not for it."""
    made = Server("panel")
    made.add_app("ui://panel/main", HTML, **declared)
    made.add_tool(lambda city: {"city": city}, name="show", app="ui://panel/main")
    made.add_tool(lambda: "fresh", name="refresh", app="ui://panel/main", visibility=["app"])
    made.add_tool(lambda: "secret", name="secret", visibility=["model"])
    made.add_resource("note://1", lambda: "a note")
    return made


@asynccontextmanager
async def showing(
    folder: Path, *, server: Server | None = None, rules: Any = ALLOW, **options: Any
) -> AsyncIterator[tuple[OpenConsole, ApiClient, dict[str, Any]]]:
    """Open a console, and a view of the page of ``w/show``."""
    servers = {"w": server or panel(), "other": panel()}
    async with on_console(servers, folder, policy=rules, apps=True, **options) as console:
        page = console.client()
        async with page.listen():
            yield console, page, await page.post("/apps", {"tool": "w/show", "origin": console.address.origin})


class Frame:
    """Sends messages as the frame of a view does."""

    def __init__(self, page: ApiClient, view: dict[str, Any], name: str = "frame-1") -> None:
        self._page = page
        self._view = view["view"]
        self._name = name
        self._id = 0

    async def post(self, message: dict[str, Any], **more: Any) -> Any:
        """Send a message; return the whole answer of the API."""
        body = {"message": {"jsonrpc": "2.0", **message}, "frame": self._name, **more}
        return await self._page.post(f"/apps/{self._view}/message", body)

    async def request(self, method: str, params: Any = None, **more: Any) -> dict[str, Any]:
        """Send a request, and wait for its reply: at once or as an event."""
        id = await self.start(method, params, **more)
        return id if isinstance(id, dict) else await self.reply(id)

    async def start(self, method: str, params: Any = None, **more: Any) -> Any:
        """Send a request; return its reply if it comes at once, else its id."""
        self._id += 1
        answer = await self.post({"id": self._id, "method": method, "params": params or {}}, **more)
        return answer["reply"] or self._id

    async def reply(self, id: int) -> dict[str, Any]:
        """Wait for the reply to a request."""
        event = await self._page.event(
            "app",
            lambda each: each.get("frame") == self._name and (each.get("message") or {}).get("id") == id,
        )
        found: dict[str, Any] = event["message"]
        return found


# --- the handshake ----------------------------------------------------------------------------------------------------


async def test_a_page_is_initialized_and_sent_the_call_that_it_shows(tmp_path: Path) -> None:
    async with on_console({"w": make_server()}, tmp_path, policy=ALLOW, apps=True) as console:
        page = console.client()
        async with page.listen():
            call = await page.call("tool", "w/show_weather", {"city": "Oslo"})
            view = await page.post("/apps", {"tool": "w/show_weather", "call": call["id"]})
            assert (view["server"], view["uri"], view["border"]) == ("w", PANEL, True)
            frame = Frame(page, view)
            context = {"theme": "dark", "containerDimensions": {"width": 400}, "toolInfo": "forged"}
            params = {"protocolVersion": "x", "appInfo": {"name": "a", "version": "1"}, "appCapabilities": {}}
            result = (await frame.request("ui/initialize", params, context=context))["result"]
            assert result["hostInfo"]["name"] == "trunkline"
            assert result["hostContext"]["theme"] == "dark"
            assert result["hostContext"]["containerDimensions"] == {"width": 400}
            assert result["hostContext"]["toolInfo"]["tool"]["name"] == "show_weather"
            assert result["hostCapabilities"]["sandbox"] == {"csp": {}, "permissions": {}}
            sent = (await frame.post({"method": "ui/notifications/initialized"}))["messages"]
            assert [each["method"] for each in sent] == [
                "ui/notifications/tool-input",
                "ui/notifications/tool-result",
            ]
            assert sent[0]["params"] == {"arguments": {"city": "Oslo"}}
            assert sent[1]["params"]["structuredContent"]["city"] == "Oslo"
            assert (await page.get(f"/apps/{view['view']}/page"))["html"].startswith("<!doctype html>")


async def test_a_frame_is_sent_the_call_once_and_again_when_its_document_was_loaded_again(tmp_path: Path) -> None:
    async with showing(tmp_path) as (_, page, _):
        call = await page.call("tool", "w/show", {"city": "Oslo"})
        view = await page.post("/apps", {"tool": "w/show", "call": call["id"]})
        sent = []
        for frame in (Frame(page, view), Frame(page, view, "frame-2")):
            for method in ("ui/initialize", None, "ui/initialize"):
                if method is not None:
                    await frame.request(method)
                answer = await frame.post({"method": "ui/notifications/initialized"})
                sent.append([each["method"].rpartition("/")[2] for each in answer["messages"]])
        assert sent == [["tool-input", "tool-result"], [], ["tool-input", "tool-result"]] * 2


@pytest.mark.parametrize("id", [{}, [1], None, 1.5, "nope"], ids=str)
async def test_a_cancellation_of_no_request_is_ignored(id: Any, tmp_path: Path) -> None:
    async with showing(tmp_path) as (_, page, view):
        message = {"method": "notifications/cancelled", "params": {"requestId": id}}
        assert await Frame(page, view).post(message) == {"reply": None, "messages": []}


async def test_a_page_of_a_call_that_runs_is_sent_the_result_later(tmp_path: Path) -> None:
    server, go = panel(), asyncio.Event()

    @server.tool(app="ui://panel/main")
    async def slow(city: str) -> dict[str, str]:
        await go.wait()
        return {"city": city}

    async with showing(tmp_path, server=server) as (_, page, _):
        request = {"kind": "tool", "id": "w/slow", "arguments": {"city": "Rome"}}
        call = (await page.post("/calls", request))["call"]
        view = await page.post("/apps", {"tool": "w/slow", "call": call["id"]})
        first = (await Frame(page, view).post({"method": "ui/notifications/initialized"}))["messages"]
        assert [each["method"] for each in first] == ["ui/notifications/tool-input"]
        go.set()
        event = await page.event("app", lambda each: each["view"] == view["view"])
        assert event["frame"] == "frame-1"
        assert event["message"]["method"] == "ui/notifications/tool-result"
        assert event["message"]["params"]["structuredContent"] == {"city": "Rome"}


async def test_small_requests_are_answered_at_once_and_unknown_ones_refused(tmp_path: Path) -> None:
    async with showing(tmp_path) as (_, page, view):
        frame = Frame(page, view)
        assert (await frame.request("ping"))["result"] == {}
        mode = await frame.request("ui/request-display-mode", {"mode": "fullscreen"})
        assert mode["result"] == {"mode": "inline"}
        for method in ("tools/list", "resources/list", "sampling/createMessage", "ui/unknown", "initialize"):
            assert (await frame.request(method))["error"]["code"] == -32601
        assert await frame.post({"id": 99, "result": {}}) == {"reply": None, "messages": []}
        await refused(frame.post({"id": {}, "method": "ping"}))
        await refused(page.post(f"/apps/{view['view']}/message", {"message": {"method": "ping"}}))


async def test_only_tools_with_a_page_are_opened(tmp_path: Path) -> None:
    async with showing(tmp_path) as (_, page, _):
        for body, status in (
            ({"tool": "w/secret"}, 400),
            ({"tool": "w/none"}, 404),
            ({"resource": "w/note://1"}, 404),
            ({}, 400),
            ({"tool": "w/show", "call": "none"}, 404),
        ):
            failed = await refused(page.post("/apps", body))
            assert failed.status == status, body
        view = await page.post("/apps", {"resource": "w/ui://panel/main"})
        assert (view["tool"], view["uri"]) == (None, "ui://panel/main")
        await page.delete(f"/apps/{view['view']}")
        failed = await refused(page.get(f"/apps/{view['view']}"))
        assert failed.status == 404


async def test_a_host_that_shows_no_pages_has_no_second_origin(tmp_path: Path) -> None:
    async with on_console({"w": panel()}, tmp_path) as console:
        page = console.client()
        assert (await page.get("/state"))["apps"] is None
        failed = await refused(page.post("/apps", {"tool": "w/show"}))
        assert failed.code == "no_apps"


async def test_a_page_is_read_again_for_its_author(tmp_path: Path) -> None:
    texts = ["<!doctype html>one", "<!doctype html>two"]
    server = Server("edited")
    server.add_app("ui://edited/page", lambda: texts.pop(0))
    server.add_tool(lambda: "x", name="show", app="ui://edited/page")
    async with showing(tmp_path, server=server) as (_, page, view):
        path = f"/apps/{view['view']}/page"
        assert (await page.get(path))["html"].endswith("one")
        assert (await page.get(path, again=1))["html"].endswith("two")
        assert (await page.get(path))["html"].endswith("two")


# --- its server -------------------------------------------------------------------------------------------------------


async def test_a_page_calls_tools_for_pages_of_its_own_server_alone(tmp_path: Path) -> None:
    async with showing(tmp_path) as (_, page, view):
        frame = Frame(page, view)
        reply = await frame.request("tools/call", {"name": "refresh", "arguments": {}})
        assert "fresh" in str(reply["result"]["content"])
        both = await frame.request("tools/call", {"name": "show", "arguments": {"city": "Bern"}})
        assert "Bern" in str(both["result"])
        for name in ("secret", "none", "other/refresh", "other__refresh", "../other/refresh"):
            refused = await frame.request("tools/call", {"name": name})
            assert "There is no tool" in refused["error"]["message"], name
        listed = [call for call in (await page.get("/state"))["calls"] if call["by"] == "app"]
        assert {call["target"] for call in listed} == {"w/refresh", "w/show"}


async def test_a_call_of_a_page_is_judged_as_one_and_asked_about(tmp_path: Path) -> None:
    async with showing(tmp_path, rules=None) as (_, page, view):
        frame = Frame(page, view)
        id = await frame.start("tools/call", {"name": "refresh"})
        item = await page.item("approval")
        assert (item["caller"], item["server"], item["name"]) == ("app", "w", "refresh")
        known = await page.event("app", lambda each: "call" in each)
        assert (known["view"], known["call"]) == (view["view"], item["call"])
        await page.post(f"/inbox/{item['id']}", {"allow": False})
        refused = await frame.reply(id)
        # How it could be allowed is for the person, not for the page.
        assert refused["error"] == {"code": -32000, "message": "The user or the policy did not allow it."}


async def test_a_page_reads_resources_of_its_own_server_alone(tmp_path: Path) -> None:
    async with showing(tmp_path) as (_, page, view):
        frame = Frame(page, view)
        reply = await frame.request("resources/read", {"uri": "note://1"})
        assert reply["result"]["contents"][0]["text"] == "a note"
        for uri in ("other/note://1", None):
            assert "error" in await frame.request("resources/read", {"uri": uri})


async def test_a_request_of_a_page_is_cancelled(tmp_path: Path) -> None:
    async with showing(tmp_path, rules=None) as (_, page, view):
        frame = Frame(page, view)
        id = await frame.start("tools/call", {"name": "refresh"})
        item = await page.item("approval")
        await frame.post({"method": "notifications/cancelled", "params": {"requestId": id}})
        assert "cancelled" in (await frame.reply(id))["error"]["message"]
        closed = await page.event("inbox_closed", lambda each: each["id"] == item["id"])
        assert closed["outcome"] == "withdrawn"


async def test_floods_and_large_messages_are_refused(tmp_path: Path) -> None:
    async with showing(tmp_path, rules=None) as (console, page, view):
        frame = Frame(page, view)
        large = await frame.request("ping", {"data": "x" * 1024 * 1023 * 1})
        assert large["result"] == {}
        views = console.console.part(AppsPart).views
        shown = views.get(view["view"])
        huge = {"jsonrpc": "2.0", "id": "h", "method": "ping", "params": {"data": "x" * 1024 * 1024}}
        refused = views.receive(shown, huge, frame="f", context={}).reply or {}
        assert "larger than" in refused["error"]["message"]
        waiting = [await frame.start("tools/call", {"name": "refresh"}) for _ in range(16)]
        assert all(isinstance(id, int) for id in waiting)
        more = await frame.start("tools/call", {"name": "refresh"})
        assert "Too many requests" in more["error"]["message"]
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        replies = [views.receive(shown, ping, frame="f", context={}).reply or {} for _ in range(400)]
        assert "Too many messages" in replies[-1]["error"]["message"]


async def test_only_so_many_views_are_open(tmp_path: Path) -> None:
    async with showing(tmp_path) as (_, page, view):
        views = [await page.post("/apps", {"tool": "w/show"}) for _ in range(32)]
        assert len({each["view"] for each in views}) == 32
        await refused(page.get(f"/apps/{view['view']}"))


# --- what is asked ----------------------------------------------------------------------------------------------------


async def test_a_link_is_asked_about_and_only_web_pages_are(tmp_path: Path) -> None:
    async with showing(tmp_path) as (_, page, view):
        frame = Frame(page, view)
        for url in ("javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "", None, "https://a b"):
            assert (await frame.request("ui/open-link", {"url": url}))["error"]["code"] == -32602
        assert not [each for each in page.events if each["type"] == "inbox"]
        id = await frame.start("ui/open-link", {"url": "https://example.com/x"})
        item = await page.item("url")
        assert (item["caller"], item["view"], item["host"]) == ("app", view["view"], "example.com")
        again = await frame.request("ui/open-link", {"url": "https://example.com/y"})
        assert again["error"]["code"] == -32000
        await page.post(f"/inbox/{item['id']}", {"action": "accept"})
        assert (await frame.reply(id))["result"] == {}
        id = await frame.start("ui/open-link", {"url": "https://example.com/z"})
        item = await page.item("url", lambda each: each["url"].endswith("z"))
        await page.post(f"/inbox/{item['id']}", {"action": "decline"})
        assert (await frame.reply(id))["error"]["code"] == -32000


async def test_a_message_of_a_page_goes_to_the_chat_after_a_yes(tmp_path: Path) -> None:
    environ = {"TRUNKLINE_MODEL": script(tmp_path, [{"says": "You said: {said}"}])}
    async with showing(tmp_path, environ=environ) as (console, page, view):
        frame = Frame(page, view)
        content = {"type": "text", "text": "Tell me more about Oslo."}
        for bad in ({"role": "assistant", "content": content}, {"role": "user", "content": {"type": "image"}}):
            assert (await frame.request("ui/message", bad))["error"]["code"] == -32602
        id = await frame.start("ui/message", {"role": "user", "content": content})
        item = await page.item("page")
        assert (item["caller"], item["text"]) == ("app", content["text"])
        assert (await page.get("/chats"))["chats"] == []
        await page.post(f"/inbox/{item['id']}", {"action": "accept"})
        assert (await frame.reply(id))["result"] == {}
        chat = (await page.event("chat"))["chat"]
        await ended(page, chat)
        messages = (await page.get(f"/chats/{chat}"))["messages"]
        assert messages[0]["parts"][0]["text"] == content["text"]
        session = next(each for each in console.console.core.sessions if "w" in each.taint.sources)
        assert session.tainted


async def test_without_a_model_a_message_of_a_page_fails_after_the_yes(tmp_path: Path) -> None:
    async with showing(tmp_path, environ={}) as (_, page, view):
        frame = Frame(page, view)
        id = await frame.start("ui/message", {"content": [{"type": "text", "text": "Hello."}]})
        item = await page.item("page")
        await page.post(f"/inbox/{item['id']}", {"action": "accept"})
        assert "No model" in (await frame.reply(id))["error"]["message"]


async def test_context_of_a_page_is_asked_about_and_reaches_the_next_message(tmp_path: Path) -> None:
    environ = {"TRUNKLINE_MODEL": script(tmp_path, [{"expects": '"row":7', "says": "Row 7."}])}
    async with showing(tmp_path, environ=environ) as (_, page, view):
        frame = Frame(page, view)
        first = await frame.start("ui/update-model-context", {"structuredContent": {"row": 1}})
        await page.item("page", lambda each: each["text"] == '{"row":1}')
        second = await frame.start("ui/update-model-context", {"structuredContent": {"row": 7}})
        # A newer context replaces the older question.
        assert "error" in await frame.reply(first)
        item = await page.item("page", lambda each: each["text"] == '{"row":7}')
        await page.post(f"/inbox/{item['id']}", {"action": "accept"})
        assert (await frame.reply(second))["result"] == {}
        same = await frame.request("ui/update-model-context", {"structuredContent": {"row": 7}})
        assert same["result"] == {}
        chat = (await page.post("/chats"))["chat"]["id"]
        await page.post(f"/chats/{chat}/messages", {"text": "Which row?"})
        await ended(page, chat)
        user, model = (await page.get(f"/chats/{chat}"))["messages"]
        assert user["parts"] == [
            {"type": "notice", "text": "Context from a page of w was added."},
            {"type": "text", "text": "Which row?"},
        ]
        assert model["parts"] == [{"type": "text", "text": "Row 7."}]


@pytest.mark.parametrize("empty", [{}, {"content": []}, {"structuredContent": {}}], ids=str)
async def test_a_page_removes_its_context_without_a_question(empty: dict[str, Any], tmp_path: Path) -> None:
    environ = {"TRUNKLINE_MODEL": script(tmp_path, [{"says": "None."}])}
    async with showing(tmp_path, environ=environ) as (_, page, view):
        frame = Frame(page, view)
        id = await frame.start("ui/update-model-context", {"structuredContent": {"row": 7}})
        item = await page.item("page")
        await page.post(f"/inbox/{item['id']}", {"action": "accept"})
        await frame.reply(id)
        assert (await frame.request("ui/update-model-context", empty))["result"] == {}
        chat = (await page.post("/chats"))["chat"]["id"]
        await page.post(f"/chats/{chat}/messages", {"text": "Which row?"})
        await ended(page, chat)
        user, _ = (await page.get(f"/chats/{chat}"))["messages"]
        assert user["parts"] == [{"type": "text", "text": "Which row?"}]


# --- the second origin ------------------------------------------------------------------------------------------------


async def fetched(console: OpenConsole, url: str, method: str = "GET", **headers: str) -> tuple[int, Any, str]:
    async with console.http.request(method, url, headers=headers) as response:
        return response.status, response.headers, await response.text()


async def test_the_frames_are_served_on_both_loopback_addresses(tmp_path: Path) -> None:
    async with showing(tmp_path) as (_, _, view):
        port = int(view["url"].split(":")[2].split("/")[0])
        for family, address in _LOOPBACK:
            # Where the port is taken, no other program can answer in the name of the frames.
            with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
                other.bind((address, port))


def _has(family: int, address: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(family) as probe:
        probe.bind((address, 0))
        return True
    return False


_LOOPBACK = [each for each in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")) if _has(*each)]


async def test_the_frame_of_a_view_has_the_policy_of_its_declaration(tmp_path: Path) -> None:
    declared = {
        "csp": AppCsp(connect=("https://api.example.com",), resources=("https://cdn.example.com",)),
        "permissions": ["camera", "clipboard_write"],
    }
    async with showing(tmp_path, server=panel(**declared)) as (console, page, view):
        assert view["url"].startswith(f"{console.console.apps_origin}/")
        assert not view["url"].startswith(console.address.origin)
        status, headers, body = await fetched(console, view["url"])
        policy = headers["content-security-policy"]
        assert status == 200
        assert "default-src 'none'" in policy
        assert "connect-src 'self' https://api.example.com;" in policy
        assert "form-action 'none'" in policy
        assert policy.endswith(f"frame-ancestors {console.address.origin}")
        # The HTML of the server is not served: the console sends it to the frame.
        assert "Panel" not in body
        assert "camera=()" in headers["permissions-policy"]
        assert view["reaches"] == ["https://api.example.com", "https://cdn.example.com"]
        assert (view["permissions"], view["granted"]) == (["camera", "clipboard_write"], [])
        permitted = await page.post(f"/apps/{view['view']}/permissions", {"permissions": ["camera", "usb"]})
        assert permitted["granted"] == ["camera"]
        _, headers, _ = await fetched(console, view["url"])
        assert "camera=*, microphone=()" in headers["permissions-policy"]
        assert "clipboard-write=()" in headers["permissions-policy"]
        assert (await page.get(f"/apps/{view['view']}/page"))["permissions"] == {"camera": {}}


async def test_the_second_origin_serves_views_to_frames_and_nothing_else(tmp_path: Path) -> None:
    async with showing(tmp_path) as (console, page, view):
        origin, url = console.console.apps_origin or "", view["url"]
        port = origin.rpartition(":")[2]
        token = {"Authorization": f"Bearer {console.address.token}"}
        assert (await fetched(console, url, **{"Sec-Fetch-Dest": "iframe"}))[0] == 200
        assert (await fetched(console, f"{url}sandbox.js", **{"Sec-Fetch-Dest": "script"}))[0] == 200
        for path in ("/", "/api/state", "/static/index.html", "/index.html", f"/{'a' * 32}/", "/sandbox.js"):
            assert (await fetched(console, f"{origin}{path}", **token))[0] == 404, path
        for headers in (
            {"Host": f"127.0.0.1:{port}"},
            {"Host": "evil.example"},
            {"Origin": "null"},
            {"Origin": console.address.origin},
            {"Sec-Fetch-Dest": "document"},
            {"Sec-Fetch-Dest": "empty"},
        ):
            assert (await fetched(console, url, **headers))[0] == 404, headers
        assert (await fetched(console, url, "POST"))[0] == 404
        await page.delete(f"/apps/{view['view']}")
        assert (await fetched(console, url))[0] == 404


async def test_a_page_that_declares_what_is_not_allowed_is_not_shown(tmp_path: Path) -> None:
    server = Server("odd")
    meta = {"ui": {"csp": {"connectDomains": ["https://x; script-src *"]}}}
    server.add_resource("ui://odd/page", lambda: HTML, mime_type="text/html;profile=mcp-app", meta=meta)
    server.add_tool(lambda: "x", name="show", meta={"ui": {"resourceUri": "ui://odd/page"}})
    async with on_console({"w": server}, tmp_path, policy=ALLOW, apps=True) as console:
        failed = await refused(console.client().post("/apps", {"tool": "w/show"}))
        assert "declaration of the page ui://odd/page is invalid" in (failed.message or "")


async def test_the_listener_ends_with_the_console(tmp_path: Path) -> None:
    async with showing(tmp_path) as (_, _, view):
        url = view["url"]
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(url)


INTERNAL = ("http://127.0.0.1:9000", "https://*.github.io")


def elsewhere(folder: Path, *origins: str) -> Any:
    """Show a page of a server on another machine that declares these origins."""
    return showing(folder, server=panel(csp=AppCsp(connect=origins)))


async def test_internal_origins_of_another_machine_are_withheld_until_they_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with elsewhere(tmp_path, "https://api.example.com", *INTERNAL) as (console, page, view):
        # A server of this machine reaches them anyway.
        assert (view["permissions"], len(view["reaches"])) == ([], 3)
        monkeypatch.setattr(apps, "_is_of_this_machine", lambda entry: False)
        view = await page.post("/apps", {"tool": "w/show", "origin": console.address.origin})
        assert (view["permissions"], view["reaches"]) == (["internal_addresses"], ["https://api.example.com"])
        _, headers, _ = await fetched(console, view["url"])
        policy = headers["content-security-policy"]
        assert "connect-src 'self' https://api.example.com;" in policy
        assert "webrtc 'block'" in policy
        sandbox = (await page.get(f"/apps/{view['view']}/page"))["csp"]
        assert sandbox == {"connectDomains": ["https://api.example.com"]}
        permitted = await page.post(f"/apps/{view['view']}/permissions", {"permissions": view["permissions"]})
        assert (permitted["permissions"], len(permitted["reaches"])) == ([], 3)


async def test_the_answer_about_internal_origins_lasts_until_it_is_revoked_or_the_set_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apps, "_is_of_this_machine", lambda entry: False)
    async with elsewhere(tmp_path, *INTERNAL) as (_, page, view):
        await page.post(f"/apps/{view['view']}/permissions", {"permissions": view["permissions"]})
    async with elsewhere(tmp_path, *INTERNAL, "http://nas.local") as (_, page, view):
        # A console that is started again asks for what is new only.
        assert (view["permissions"], view["reaches"]) == (["internal_addresses"], list(INTERNAL))
        [grant] = (await page.get("/policy"))["grants"]
        assert (grant["kind"], grant["name"]) == ("origins", " ".join(sorted(INTERNAL)))
        await page.delete(f"/grants/{grant['id']}")
    async with elsewhere(tmp_path, *INTERNAL) as (_, page, view):
        assert (view["permissions"], view["reaches"]) == (["internal_addresses"], [])


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param({"command": ("server",)}, True, id="a process"),
        pytest.param({"url": "http://127.0.0.1:8000/mcp"}, True, id="a URL of this machine"),
        pytest.param({"url": "https://mcp.example.com/mcp"}, False, id="another machine"),
    ],
)
def test_which_server_is_of_this_machine(entry: dict[str, Any], expected: bool) -> None:
    assert apps._is_of_this_machine(ServerEntry(name="s", source=Source("given"), **entry)) is expected
