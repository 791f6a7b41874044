"""``trunkline run --reload``: a real process, a real client in both eras, and files that change under them."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest

import trunkline
from tests.cli.pages import started
from tests.cli.support import Cli, command, serving
from tests.support import BOUND
from trunkline import Client, Context, Server
from trunkline.cli.exit_codes import CommandError
from trunkline.cli.reload import ProjectModules, _reload
from trunkline.cli.targets import load_server
from trunkline.server.replacement import Reloader

SERVER = """\
from trunkline import Server
from helper import VALUE

server = Server("reloaded")


@server.tool
def value() -> str:
    return VALUE
"""
TOOL = """

@server.tool
def added(x: int) -> int:
    return x + 1
"""
SLOW = """

@server.tool
async def slow() -> str:
    import asyncio
    from pathlib import Path

    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "old code"
"""
LIFESPAN = """\
from contextlib import asynccontextmanager
from trunkline import Context, Server


@asynccontextmanager
async def lifespan(server):
    with open("log", "a") as log:
        log.write("enter NAME\\n")
    BODY
    yield "NAME"
    with open("log", "a") as log:
        log.write("exit NAME\\n")


server = Server("with a lifespan", lifespan=lifespan)


@server.tool
def value(ctx: Context) -> str:
    return str(ctx.lifespan_context)
"""

#: Each transport, and each era once.
SIDES = pytest.mark.parametrize(("transport", "revision"), [("stdio", "2025-11-25"), ("http", "2026-07-28")])
SECONDS = BOUND


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A server in one file that uses another."""
    (tmp_path / "main.py").write_text(SERVER, encoding="utf-8")
    (tmp_path / "helper.py").write_text('VALUE = "one"\n', encoding="utf-8")
    return tmp_path


@asynccontextmanager
async def connected(transport: str, revision: str, project: Path, log: list[str]) -> AsyncIterator[Client]:
    """A client of the project's server, which runs with ``--reload``."""
    if transport == "http":
        with serving("main.py", "--http", "0", "--reload", cwd=project) as served:
            async with Client(served.url, revision=revision) as client:
                yield client
            log.append(served.stop().err)
        return
    env = {"PYTHONPATH": str(Path(trunkline.__file__).parents[1])}
    words = [sys.executable, "-m", "trunkline", "run", "--reload", "main.py"]
    async with Client(
        words, cwd=str(project), env=env, revision=revision, on_stderr=lambda text: log.append(text.decode())
    ) as client:
        yield client


@pytest.fixture
def log() -> list[str]:
    return []


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(SECONDS):
        while not await condition():  # noqa: ASYNC110 - the condition is in another process
            await asyncio.sleep(0.02)


async def until_returned(client: Client, tool: str, wanted: str) -> None:
    """Wait until a tool returns a text."""

    async def returned() -> bool:
        return bool((await client.call_tool(tool)).data == wanted)

    await until(returned)


async def until_written(path: Path, wanted: str) -> None:
    """Wait until a file contains a text."""

    async def written() -> bool:
        try:
            return wanted in await asyncio.to_thread(path.read_text, encoding="utf-8")
        except FileNotFoundError:
            return False

    await until(written)


async def until_logged(log: list[str], wanted: str) -> None:
    """Wait until the server has written a text to stderr."""

    async def logged() -> bool:
        return wanted in "".join(log)

    await until(logged)


async def names(client: Client) -> list[str]:
    return [tool.name for tool in await client.list_tools()]


@SIDES
async def test_a_tool_is_added_in_the_same_session(
    transport: str, revision: str, project: Path, log: list[str]
) -> None:
    async with connected(transport, revision, project, log) as client, client.listen() as changes:
        assert await names(client) == ["value"]
        (project / "main.py").write_text(SERVER + TOOL, encoding="utf-8")
        async with asyncio.timeout(SECONDS):
            change = await anext(aiter(changes))
        assert change.kind == "tools"
        assert await names(client) == ["value", "added"]
        assert (await client.call_tool("added", {"x": 1})).data == 2
    assert "main.py changed; reloaded: tools +added" in "".join(log)


@SIDES
async def test_a_broken_edit_keeps_the_server_of_before(
    transport: str, revision: str, project: Path, log: list[str]
) -> None:
    async with connected(transport, revision, project, log) as client:
        assert (await client.call_tool("value")).data == "one"
        (project / "broken.py").write_text("def broken(:\n", encoding="utf-8")
        (project / "main.py").write_text("open('tried', 'w').close()\nimport broken\n", encoding="utf-8")
        await until_written(project / "tried", "")
        assert (await client.call_tool("value")).data == "one"
        (project / "main.py").write_text(SERVER + TOOL, encoding="utf-8")
        async with asyncio.timeout(SECONDS), client.listen() as changes:
            if "added" not in await names(client):
                await anext(aiter(changes))
        assert (await client.call_tool("added", {"x": 1})).data == 2
    text = "".join(log)
    assert "def broken(:" in text
    assert "SyntaxError" in text
    told = [line for line in text.splitlines() if line.endswith("cannot be loaded; the previous version keeps running")]
    assert told
    assert all(line.startswith("trunkline: ") for line in told)


async def test_a_module_that_the_server_imports_is_watched(project: Path, log: list[str]) -> None:
    async with connected("stdio", "auto", project, log) as client:
        assert (await client.call_tool("value")).data == "one"
        (project / "helper.py").write_text('VALUE = "two"\n', encoding="utf-8")
        await until_returned(client, "value", "two")
    assert "no list changed" in "".join(log)


async def test_a_running_call_finishes_with_the_old_code(project: Path, log: list[str]) -> None:
    (project / "main.py").write_text(SERVER + SLOW, encoding="utf-8")
    async with connected("http", "auto", project, log) as client:
        call = asyncio.ensure_future(client.call_tool("slow"))
        (project / "main.py").write_text(SERVER + SLOW.replace("old", "new"), encoding="utf-8")
        (project / "helper.py").write_text('VALUE = "two"\n', encoding="utf-8")
        await until_returned(client, "value", "two")
        assert not call.done()
        (project / "go").touch()
        assert (await call).data == "old code"
        assert (await client.call_tool("slow")).data == "new code"


async def test_the_lifespan_of_the_new_server_is_entered_before_the_old_one_is_exited(
    project: Path, log: list[str]
) -> None:
    main = project / "main.py"

    def write(name: str, body: str = "pass") -> None:
        main.write_text(LIFESPAN.replace("NAME", name).replace("BODY", body), encoding="utf-8")

    write("one")
    async with connected("stdio", "auto", project, log) as client:
        await until_returned(client, "value", "one")
        write("two")
        await until_returned(client, "value", "two")
        write("three", 'raise OSError("no database")')
        await until_written(project / "log", "enter three")
        assert (await client.call_tool("value")).data == "two"
        write("four")
        await until_returned(client, "value", "four")
    text = "".join(log)
    assert "OSError: no database" in text
    assert "its lifespan failed; the previous version keeps running" in text
    steps = (project / "log").read_text(encoding="utf-8").splitlines()
    assert steps == ["enter one", "enter two", "exit one", "enter three", "enter four", "exit two", "exit four"]


async def test_a_module_is_run_by_its_name(project: Path, log: list[str]) -> None:
    package = project / "weather"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "main.py").write_text(SERVER.replace("helper", "weather.helper"), encoding="utf-8")
    (package / "helper.py").write_text('VALUE = "one"\n', encoding="utf-8")
    env = {"PYTHONPATH": str(Path(trunkline.__file__).parents[1])}
    words = [sys.executable, "-P", "-m", "trunkline", "run", "--reload", "-m", "weather.main"]
    async with Client(words, cwd=str(project), env=env, on_stderr=lambda text: log.append(text.decode())) as client:
        assert (await client.call_tool("value")).data == "one"
        (package / "helper.py").write_text('VALUE = "two"\n', encoding="utf-8")
        await until_returned(client, "value", "two")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-m", "no_such_module"), "there is no module no_such_module"),
        (("-m", "no such"), "is not the name of a module"),
        (("-m", "os"), "has no Server"),
        (("main.py", "-m", "main"), "Pass either FILE or -m MODULE, not both."),
        (("--reload", "--compat", "main.py"), "--reload cannot be combined with --compat"),
        (("--reload",), "Missing argument"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(
    words: tuple[str, ...], sentence: str, project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", list(sys.path))
    ended = cli("run", *words)
    assert ended.code in (1, 2)
    assert sentence in ended.err


@pytest.mark.parametrize("words", [("main.py",), ("--reload", "-m", "main")])
def test_what_a_file_prints_when_it_is_imported_stays_out_of_the_protocol(
    words: tuple[str, ...], project: Path
) -> None:
    (project / "main.py").write_text('print("hello")\n' + SERVER, encoding="utf-8")
    ended = command("run", *words, cwd=project, stdin='{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    assert ended.code == 0
    assert ended.out.startswith("{")
    assert "hello" in ended.err


# --- modules ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def modules(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProjectModules]:
    """The modules of the project, loaded in this process."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = frozenset(sys.modules)
    made = ProjectModules(lambda: load_server(str(project / "main.py")), [str(project)])
    made.load()
    yield made
    for name in frozenset(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(project)):
            del sys.modules[name]


def watched(modules: ProjectModules) -> set[str]:
    return {os.path.basename(path) for path in modules.stamps()}


def test_modules_of_before_are_back_after_a_failure(modules: ProjectModules, project: Path) -> None:
    assert watched(modules) == {"main.py", "helper.py"}
    helper, path = sys.modules["helper"], list(sys.path)
    (project / "main.py").write_text("import helper\nraise SystemExit(3)\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        modules.load()
    assert (sys.modules["helper"], sys.path) == (helper, path)
    (project / "main.py").write_text("import helper\n1 / 0\n", encoding="utf-8")
    with pytest.raises(CommandError, match="ZeroDivisionError"):
        modules.load()
    assert sys.modules["helper"] is helper
    (project / "main.py").write_text(SERVER, encoding="utf-8")
    modules.load()
    assert sys.modules["helper"] is not helper
    assert sys.path == path


def test_a_link_to_nothing_does_not_hide_other_files(modules: ProjectModules, project: Path) -> None:
    """Emacs marks a file that is being edited by a link to nothing, ``.#main.py``."""
    for number in range(20):
        (project / f".#{number}.py").symlink_to("someone@host.1234:5678")
    assert watched(modules) == {"main.py", "helper.py"}


@pytest.mark.parametrize("text", ["def broken(:\n", "1 / 0\n"])
def test_the_folder_of_a_new_module_that_fails_is_watched(modules: ProjectModules, project: Path, text: str) -> None:
    (project / "deep" / "lib").mkdir(parents=True)
    (project / "deep" / "lib" / "broken.py").write_text(text, encoding="utf-8")
    (project / "main.py").write_text("import deep.lib.broken\n" + SERVER, encoding="utf-8")
    with pytest.raises(CommandError):
        modules.load()
    assert "broken.py" in watched(modules)
    (project / "main.py").write_text(SERVER, encoding="utf-8")
    modules.load()
    assert watched(modules) == {"main.py", "helper.py"}


def test_a_package_that_is_missing_is_noticed_when_it_is_created(modules: ProjectModules, project: Path) -> None:
    (project / "main.py").write_text("import package\n" + SERVER, encoding="utf-8")
    with pytest.raises(CommandError):
        modules.load()
    (project / "package").mkdir()
    (project / "package" / "__init__.py").touch()
    assert "__init__.py" in watched(modules)


def test_a_module_whose_attributes_raise_is_not_ours(modules: ProjectModules, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise ImportError(name)

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "lazy_and_broken", Lazy("lazy_and_broken"))
        assert watched(modules) == {"main.py", "helper.py"}


# --- from the outside ------------------------------------------------------------------------------------------------


async def test_a_server_that_has_not_been_called_yet_is_reloaded(project: Path) -> None:
    with serving("main.py", "--http", "0", "--reload", cwd=project) as served:
        (project / "main.py").write_text(SERVER + TOOL + 'open("loaded", "w").close()\n', encoding="utf-8")
        await until_written(project / "loaded", "")
        async with Client(served.url) as client:
            await until_returned(client, "value", "one")
            assert (await client.call_tool("added", {"x": 1})).data == 2
        assert served.stop().code == 0


async def test_a_question_is_answered_to_the_new_code(project: Path, log: list[str]) -> None:
    """A stateless call that asked its user is resumed after a reload: the seal of its state is kept."""
    ask = "\nfrom trunkline import Context\n\n\n@server.tool\nasync def asks(ctx: Context) -> str:\n"
    ask += '    answer = await ctx.elicit("Go on?", bool)\n'
    (project / "main.py").write_text(SERVER + ask + '    return f"old {answer.data}"\n', encoding="utf-8")
    asked = asyncio.Event()
    answered = asyncio.Event()

    async def answer(*_: object) -> dict[str, object]:
        asked.set()
        await answered.wait()
        return {"value": True}

    with serving("main.py", "--http", "0", "--reload", cwd=project) as served:
        async with Client(served.url, revision="2026-07-28", elicitation=answer) as client:
            call = asyncio.ensure_future(client.call_tool("asks"))
            await asyncio.wait_for(asked.wait(), SECONDS)
            (project / "main.py").write_text(SERVER + ask + '    return f"new {answer.data}"\n', encoding="utf-8")
            (project / "helper.py").write_text('VALUE = "two"\n', encoding="utf-8")
            await until_returned(client, "value", "two")
            answered.set()
            assert (await call).data == "new True"


async def test_a_file_that_is_replaced_or_gone_for_a_moment_is_followed(project: Path, log: list[str]) -> None:
    async with connected("stdio", "auto", project, log) as client:
        (project / "main.py").unlink()
        (project / "helper.py").write_text('VALUE = "two"\n', encoding="utf-8")
        await until_logged(log, "cannot be loaded")
        assert (await client.call_tool("value")).data == "one"
        (project / "new").write_text(SERVER.replace("return VALUE", 'return "replaced"'), encoding="utf-8")
        os.replace(project / "new", project / "main.py")
        await until_returned(client, "value", "replaced")


async def test_over_stdio_a_server_that_cannot_be_loaded_at_first_is_waited_for(project: Path, log: list[str]) -> None:
    (project / "main.py").write_text("def broken(:\n", encoding="utf-8")

    async def mend() -> None:
        await until_logged(log, "cannot be loaded; it is started once its files have changed")
        (project / "main.py").write_text(SERVER, encoding="utf-8")

    mending = asyncio.create_task(mend())
    async with connected("stdio", "2025-11-25", project, log) as client:
        await mending
        assert (await client.call_tool("value")).data == "one"
    assert "SyntaxError" in "".join(log)


async def test_over_http_a_server_that_cannot_be_loaded_at_first_is_waited_for(project: Path) -> None:
    (project / "main.py").write_text("from helper import NOTHING\n", encoding="utf-8")
    with started("run", "--reload", "main.py", "--http", "0", cwd=project) as process:
        while "cannot be loaded; it is started once" not in (line := process.stderr.readline()):
            assert line
        (project / "main.py").write_text(SERVER, encoding="utf-8")
        while "is served at" not in (line := process.stderr.readline()):
            assert line


def test_a_server_without_a_client_that_cannot_be_loaded_at_first_ends_with_its_traceback(project: Path) -> None:
    (project / "main.py").write_text("1 / 0\n", encoding="utf-8")
    ended = command("run", "--reload", "main.py", cwd=project)
    assert (ended.code, "ZeroDivisionError" in ended.err) == (2, True)


@pytest.mark.parametrize("secured", [False, True])
async def test_a_verifier_that_needs_a_restart_is_pointed_out(
    secured: bool, capsys: pytest.CaptureFixture[str], modules: ProjectModules
) -> None:
    """A token that was revoked in the source is accepted until then."""

    def load() -> Server:
        async def authenticate(headers: Mapping[str, str]) -> None:
            return None

        return Server("secured", auth=authenticate) if secured else Server("open")

    modules._load = load
    running = Reloader(load())
    await _reload(running, modules, "main.py")
    await running.aclose()
    assert ("apply after a restart" in capsys.readouterr().err) is secured


# --- servers that take over ------------------------------------------------------------------------------------------


async def test_earlier_servers_are_let_go() -> None:
    earlier: list[weakref.ref[Server]] = []
    running = Reloader(Server("first"))
    async with Client(running.server) as client:
        for number in range(10):
            server = Server("next")
            server.add_tool(lambda: 1, name=f"tool_{number}")
            earlier.append(weakref.ref(running.server))
            (change,) = await running.replace(server)
            assert (change.kind, change.added) == ("tools", (f"tool_{number}",))
            assert [tool.name for tool in await client.list_tools()] == [f"tool_{number}"]
        del server
        await asyncio.sleep(0)
        await running.aclose()
    gc.collect()
    assert [each for each in earlier[1:] if each() is not None] == []


def with_lifespan(name: str, steps: list[str], gate: asyncio.Event | None = None) -> Server:
    """A server whose lifespan records its steps, and waits for the gate before it is entered."""

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[str]:
        steps.append(f"enter {name}")
        if gate is not None:
            await gate.wait()
        yield name
        steps.append(f"exit {name}")

    server = Server(name, lifespan=lifespan)

    @server.tool
    async def value(ctx: Context) -> str:
        return str(ctx.lifespan_context)

    return server


async def test_a_lifespan_that_is_never_entered_does_not_replace_a_server() -> None:
    steps: list[str] = []
    running = Reloader(with_lifespan("one", steps))
    async with asyncio.timeout(SECONDS), Client(running.server) as client:
        with pytest.raises(TimeoutError):
            await running.replace(with_lifespan("two", steps, asyncio.Event()), seconds=0.01)
        assert (await client.call_tool("value")).data == "one"
        await running.aclose()


async def test_a_request_that_waits_for_the_old_lifespan_is_served_inside_it() -> None:
    steps: list[str] = []
    gate = asyncio.Event()
    old = Server("old")
    running = Reloader(old)
    async with asyncio.timeout(SECONDS), Client(old) as client:
        old.mount(with_lifespan("one", steps, gate))
        call = asyncio.ensure_future(client.call_tool("value"))
        await asyncio.sleep(0.05)
        assert steps == ["enter one"]
        await running.replace(with_lifespan("two", steps))
        await asyncio.sleep(0.01)
        gate.set()
        assert (await call).data == "one"
        assert (await client.call_tool("value")).data == "two"
        await running.aclose()
    assert steps == ["enter one", "enter two", "exit one", "exit two"]
