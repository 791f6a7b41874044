"""The official reference servers behind the gateway, npm and PyPI packages, for the official client in both eras."""

from __future__ import annotations

import asyncio
import base64
import gzip
import http.server
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import mcp
import mcp_types as theirs
import pytest
from mcp.client import ClientRequestContext
from mcp.client.subscriptions import ResourceUpdated

from tests.interop.gateway_stage import (
    FRONTS,
    Fronts,
    Served,
    configured,
    entry,
    python_server,
    served,
    visit_gateway,
)
from tests.interop.peers import NEWEST, NEWEST_HANDSHAKE, npm_server
from tests.interop.test_official_client import Heard, only_text
from tests.interop.test_official_client_asked import folders, model

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

EITHER = pytest.mark.parametrize("server", ["everything", "everything-web"])
PAGE = b"<html><body><article><h1>Rivers</h1><p>The river is long and wide.</p></article></body></html>"


# --- the stage -------------------------------------------------------------------------------------------------------


@contextmanager
def everything_over_http() -> Iterator[str]:
    """Run the server ``everything`` over Streamable HTTP; it takes a port and says nothing that could be waited for."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [*npm_server("everything"), "streamableHttp"]
    process = subprocess.Popen(["env", f"PORT={port}", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def wait_for(port: int) -> None:
    """Wait until somebody listens on a port."""
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"nobody listens on port {port}")


@contextmanager
def a_page() -> Iterator[str]:
    """Serve one page."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if self.path == "/robots.txt" else 200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def gateway_to(servers: dict[str, Any], folder: Path) -> Iterator[Served]:
    with served(configured(servers, folder), servers) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that servers of files and of Git are given."""
    made = tmp_path_factory.mktemp("reference")
    (made / "files").mkdir()
    repository = made / "repository"
    git = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-C", str(repository)]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "a.txt").write_text("one\n")
    subprocess.run([*git, "add", "a.txt"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "The first one"], check=True)
    return made


@pytest.fixture(scope="module")
def npm(folder: Path) -> Iterator[Served]:
    """A gateway to the servers from npm."""
    with ExitStack() as stack:
        place = folder / "npm"
        place.mkdir()
        servers = {
            "everything": entry(npm_server("everything")),
            "everything-web": {"type": "http", "url": stack.enter_context(everything_over_http())},
            "files": entry(npm_server("filesystem", str(folder / "files"))),
            "memory": entry(npm_server("memory"), env={"MEMORY_FILE_PATH": str(folder / "graph.jsonl")}),
        }
        yield stack.enter_context(gateway_to(servers, place))


@pytest.fixture(scope="module")
def pypi(folder: Path) -> Iterator[Served]:
    """A gateway to the servers from PyPI."""
    place = folder / "pypi"
    place.mkdir()
    servers = {
        "time": entry(python_server("time", "--local-timezone", "Europe/Oslo")),
        "git": entry(python_server("git", "--repository", str(folder / "repository"))),
        "fetch": entry(python_server("fetch", "--allow-private-ips")),
    }
    with gateway_to(servers, place) as found:
        yield found


@pytest.fixture(scope="module")
def plain(npm: Served) -> Iterator[Fronts]:
    """Clients that cannot be asked anything."""
    with Fronts(npm) as fronts:
        yield fronts


async def fill_in(context: ClientRequestContext, params: theirs.ElicitRequestParams) -> theirs.ElicitResult:
    """Fill in the form of the server ``everything``, or open its page."""
    content: dict[str, Any] = {"name": "Ann", "check": True, "number": 2.5}
    is_page = isinstance(params, theirs.ElicitRequestURLParams)
    return theirs.ElicitResult(action="accept", content=None if is_page else content)


@pytest.fixture(scope="module")
def asked(npm: Served) -> Iterator[Fronts]:
    """Clients that can be asked everything."""
    with Fronts(npm, elicitation_callback=fill_in, sampling_callback=model, list_roots_callback=folders) as fronts:
        yield fronts


@pytest.fixture(scope="module")
def fronts(pypi: Served) -> Iterator[Fronts]:
    """Clients of the servers from PyPI."""
    with Fronts(pypi) as clients:
        yield clients


def call(fronts: Fronts, front: str, tool: str, **arguments: Any) -> theirs.CallToolResult:
    result: theirs.CallToolResult = fronts(front, lambda client: client.call_tool(tool, arguments))
    return result


# --- everything ------------------------------------------------------------------------------------------------------


@FRONTS
@EITHER
def test_tools_that_ask_are_listed_to_clients_that_can_be_asked(
    plain: Fronts, asked: Fronts, front: str, server: str
) -> None:
    asking = {f"{server}__{name}" for name in ("get-roots-list", "trigger-elicitation-request")}
    asking.add(f"{server}__trigger-sampling-request")
    to_plain = {tool.name for tool in plain(front, lambda client: client.list_tools()).tools}
    to_asked = {tool.name for tool in asked(front, lambda client: client.list_tools()).tools}
    assert {f"{server}__echo", f"{server}__get-tiny-image"} <= to_plain
    assert (asking & to_plain, asking <= to_asked) == (set(), True)


@FRONTS
@EITHER
def test_a_large_text_is_echoed(plain: Fronts, front: str, server: str) -> None:
    text = only_text(call(plain, front, f"{server}__echo", message="x" * 500_000))
    assert text == "Echo: " + "x" * 500_000


@FRONTS
@EITHER
def test_links_and_embedded_resources_can_be_read(plain: Fronts, front: str, server: str) -> None:
    async def work(client: mcp.Client) -> list[str]:
        links = (await client.call_tool(f"{server}__get-resource-links", {"count": 2})).content[1:]
        uris = [link.uri for link in links if isinstance(link, theirs.ResourceLink)]
        return [str((await client.read_resource(uri)).contents[0].uri) for uri in uris]

    kinds = ("blob/1", "text/2")
    assert plain(front, work) == [f"demo://{server}/resource/dynamic/{kind}" for kind in kinds]


@FRONTS
@EITHER
@pytest.mark.parametrize("clients", ["plain", "asked"])
def test_a_resource_that_a_tool_made_can_be_read(
    request: pytest.FixtureRequest, clients: str, front: str, server: str
) -> None:
    async def work(client: mcp.Client) -> theirs.ReadResourceResult:
        arguments = {"name": f"{clients}.gz", "data": "data:,hello", "outputType": "resourceLink"}
        [link] = (await client.call_tool(f"{server}__gzip-file-as-resource", arguments)).content
        assert isinstance(link, theirs.ResourceLink)
        return await client.read_resource(link.uri)

    [contents] = request.getfixturevalue(clients)(front, work).contents
    assert gzip.decompress(base64.b64decode(contents.blob)) == b"hello"


@FRONTS
@EITHER
def test_the_user_fills_in_a_form_of_every_kind_of_field(asked: Fronts, front: str, server: str) -> None:
    content = call(asked, front, f"{server}__trigger-elicitation-request").content
    assert "- Name: Ann\n- Agreed to terms: true" in "".join(getattr(block, "text", "") for block in content)


@FRONTS
@EITHER
def test_an_embedded_resource_of_a_prompt_is_under_its_server(plain: Fronts, front: str, server: str) -> None:
    arguments = {"resourceType": "Text", "resourceId": "5"}
    prompt = plain(front, lambda client: client.get_prompt(f"{server}__resource-prompt", arguments))
    assert prompt.messages[1].content.resource.uri == f"demo://{server}/resource/dynamic/text/5"


ABLE = pytest.mark.parametrize("able", [{}, {"elicitation_callback": fill_in}], ids=["plain", "can-be-asked"])


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    """A gateway to a server that nobody has told to do anything yet."""
    with gateway_to({"everything": entry(npm_server("everything"))}, tmp_path) as found:
        yield found


@ABLE
def test_updates_of_a_resource_are_told_to_a_session(fresh: Served, able: dict[str, Any]) -> None:
    heard = Heard()
    uri = "demo://everything/resource/dynamic/text/1"

    async def work(client: mcp.Client) -> list[Any]:
        await client.subscribe_resource(uri)
        await client.call_tool("everything__toggle-subscriber-updates")
        return await heard.until(lambda items: any("updated" in item.method for item in items))

    found = visit_gateway(fresh, NEWEST_HANDSHAKE, work, message_handler=heard, **able)
    assert uri in {str(item.params.uri) for item in found if "updated" in item.method}


@ABLE
def test_updates_of_a_resource_are_told_to_a_listener(fresh: Served, able: dict[str, Any]) -> None:
    uri = "demo://everything/resource/dynamic/text/2"

    async def work(client: mcp.Client) -> Any:
        async with client.listen(resource_subscriptions=[uri]) as changes:
            await client.call_tool("everything__toggle-subscriber-updates")
            return await anext(changes)

    assert visit_gateway(fresh, NEWEST, work, **able) == ResourceUpdated(uri=uri)


# --- filesystem, memory ----------------------------------------------------------------------------------------------


@FRONTS
def test_a_file_is_written_edited_and_read(plain: Fronts, folder: Path, front: str) -> None:
    path = str(folder / "files" / f"{front}.txt")

    async def work(client: mcp.Client) -> Any:
        await client.list_tools()
        await client.call_tool("files__write_file", {"path": path, "content": "one\ntwo\n"})
        edits = [{"oldText": "two", "newText": "drei ✓"}]
        await client.call_tool("files__edit_file", {"path": path, "edits": edits})
        return (await client.call_tool("files__read_text_file", {"path": path})).structured_content

    assert plain(front, work) == {"content": "one\ndrei ✓\n"}
    assert Path(path).read_text() == "one\ndrei ✓\n"


@FRONTS
def test_what_lies_outside_is_refused(plain: Fronts, front: str) -> None:
    result = call(plain, front, "files__read_text_file", path="/etc/hostname")
    assert result.is_error
    assert "outside allowed directories" in only_text(result)


@FRONTS
def test_the_folders_of_the_client_count_for_its_own_calls(npm: Served, tmp_path: Path, front: str) -> None:
    async def here(context: ClientRequestContext) -> theirs.ListRootsResult:
        return theirs.ListRootsResult(roots=[theirs.Root.model_validate({"uri": tmp_path.as_uri()})])

    async def work(client: mcp.Client) -> str:
        await until_allowed(client, str(tmp_path))
        return only_text(await client.call_tool("files__list_allowed_directories"))

    assert visit_gateway(npm, front, work, list_roots_callback=here) == f"Allowed directories:\n{tmp_path}"


async def until_allowed(client: mcp.Client, folder: str) -> None:
    """Call until a folder is allowed: the server asks for folders when it starts, and serves meanwhile."""
    while folder not in only_text(await client.call_tool("files__list_allowed_directories")):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


@FRONTS
def test_the_folders_of_one_client_are_not_those_of_a_client_without_any(
    plain: Fronts, folder: Path, front: str
) -> None:
    assert str(folder / "files") in only_text(call(plain, front, "files__list_allowed_directories"))


@FRONTS
def test_the_folders_of_one_client_are_not_those_of_another(npm: Served, tmp_path: Path, front: str) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()

    def roots(name: str) -> Callable[[ClientRequestContext], Any]:
        async def here(context: ClientRequestContext) -> theirs.ListRootsResult:
            return theirs.ListRootsResult(roots=[theirs.Root.model_validate({"uri": (tmp_path / name).as_uri()})])

        return here

    async def first(client: mcp.Client) -> None:
        await until_allowed(client, str(tmp_path / "one"))

    async def second(client: mcp.Client) -> str:
        return only_text(await client.call_tool("files__list_allowed_directories"))

    visit_gateway(npm, front, first, list_roots_callback=roots("one"))
    assert str(tmp_path / "one") not in visit_gateway(npm, front, second, list_roots_callback=roots("other"))


def test_what_a_client_of_one_era_remembers_one_of_the_other_finds(plain: Fronts) -> None:
    ann = {"name": "Ann", "entityType": "person", "observations": ["likes rivers"]}
    call(plain, NEWEST_HANDSHAKE, "memory__create_entities", entities=[ann])
    found = call(plain, NEWEST, "memory__search_nodes", query="rivers")
    assert found.structured_content is not None
    assert found.structured_content["entities"] == [ann]


# --- PyPI ------------------------------------------------------------------------------------------------------------


@FRONTS
def test_the_time_is_told(fronts: Fronts, front: str) -> None:
    told = json.loads(only_text(call(fronts, front, "time__get_current_time", timezone="Asia/Tokyo")))
    assert (told["timezone"], told["datetime"][-6:]) == ("Asia/Tokyo", "+09:00")


@FRONTS
def test_a_repository_is_looked_at(fronts: Fronts, folder: Path, front: str) -> None:
    repository = str(folder / "repository")
    status = only_text(call(fronts, front, "git__git_status", repo_path=repository))
    history = only_text(call(fronts, front, "git__git_log", repo_path=repository, max_count=1))
    assert "nothing to commit" in status
    assert "The first one" in history


@FRONTS
def test_a_page_is_fetched(fronts: Fronts, front: str) -> None:
    with a_page() as url:
        text = only_text(call(fronts, front, "fetch__fetch", url=url))
    assert "The river is long and wide." in text
