"""The Docker server, through a client, in front of a double of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from servers.tests.commands import started
from servers.tests.docker.fake_engine import EngineDouble, engine_double, frame
from tests.support import run_async
from trunkline import Client, ConfigError, ToolError
from trunkline.client.tool_cache import CallResult
from trunkline.errors import ConnectionLost
from trunkline_servers.docker import make_server
from trunkline_servers.docker.engine import DockerEngine
from trunkline_servers.docker.models import stats

IMAGE = "alpine:3.20"
REVISIONS = ("2025-06-18", "2026-07-28")


def asked(
    tool: str,
    arguments: dict[str, Any],
    *,
    state: Mapping[str, Any] | None = None,
    prepare: Callable[[EngineDouble], object] = lambda double: None,
    revision: str = "2026-07-28",
    **options: Any,
) -> tuple[CallResult, EngineDouble]:
    """Call one tool in front of a double with some attributes set; give the result, and the double at the end."""

    async def main() -> tuple[CallResult, EngineDouble]:
        async with engine_double() as double:
            for name, value in (state or {}).items():
                setattr(double, name, value)
            prepare(double)
            async with Client(make_server(double.host, **options), revision=revision) as client:
                return await client.call_tool(tool, arguments, raise_on_error=False), double

    return run_async(main())


def ask(tool: str, arguments: dict[str, Any], **options: Any) -> Any:
    """Call one tool in front of a double; give the structured answer, or raise the error."""
    result, _ = asked(tool, arguments, **options)
    if result.is_error:
        raise ToolError(result.text)
    return result.structured_content


# --- looking ---------------------------------------------------------------------------------------------------------


def test_containers_are_listed() -> None:
    rows = ask("list_containers", {"all": True, "limit": 5})["containers"]
    assert [(row["names"], row["own"]) for row in rows] == [(["web"], False), (["own"], True)]
    assert rows[0]["ports"] == ["127.0.0.1:8080->80/tcp"]


def test_only_containers_that_run_are_listed_unless_all_are_asked_for() -> None:
    def prepare(double: EngineDouble) -> None:
        double.add("idle", {"Labels": {}})

    def names(arguments: dict[str, Any]) -> list[list[str]]:
        return [row["names"] for row in ask("list_containers", arguments, prepare=prepare)["containers"]]

    assert (names({}), names({"limit": 1})) == ([["web"], ["own"]], [["web"]])
    assert (names({"all": True}), names({"all": True, "limit": 1})) == ([["web"], ["own"], ["idle"]], [["web"]])


def test_images_are_listed_whatever_a_row_holds() -> None:
    rows = ask("list_images", {})["images"]
    assert [row["tags"] for row in rows] == [["alpine:3.20"], [], []]


def test_an_inspection_hides_what_looks_secret() -> None:
    shown = ask("inspect", {"container": "web"})
    assert shown["environment"] == {"PATH": "/bin", "DB_PASSWORD": "(hidden)", "URL": "(hidden)"}
    assert shown["command"] == ["run", "--password", "(hidden)", "--token=(hidden)"]
    assert "hush" not in str(shown)


def test_logs_of_a_terminal_have_no_frames() -> None:
    def prepare(double: EngineDouble) -> None:
        double.add("tty", {"Tty": True, "Labels": {}})

    assert ask("logs", {"container": "tty"}, prepare=prepare, state={"log": b"plain\r\n"})["stdout"] == "plain\r\n"


def test_long_logs_lose_their_beginning() -> None:
    logs = ask("logs", {"container": "web"}, state={"log": frame(1, b"x" * 100_000 + b"end")})
    assert (len(logs["stdout"]), logs["stdout"][-4:], logs["cut"]) == (65536, "xend", True)


@pytest.mark.parametrize(
    "log", [b"\x01\x00\x00", frame(1, b"abc")[:-1], b"\x01\x00\x00\x00\xff\xff\xff\xffab", b"\xff" * 64]
)
def test_a_truncated_or_broken_frame_is_not_an_error(log: bytes) -> None:
    assert len(ask("logs", {"container": "web"}, state={"log": log})["stdout"]) <= len(log)


def test_stats_are_computed() -> None:
    assert ask("stats", {"container": "web"}) == {
        "cpu_percent": 40.0,
        "memory_bytes": 400,
        "memory_limit": 1000,
        "network_received": 11,
        "network_sent": 22,
        "disk_read": 5,
        "disk_written": 6,
        "pids": 3,
    }


def test_a_container_that_does_not_run_has_no_stats() -> None:
    def prepare(double: EngineDouble) -> None:
        double.add("idle", {"Labels": {}})

    with pytest.raises(ToolError, match="The container idle is not running"):
        ask("stats", {"container": "idle"}, prepare=prepare)


@pytest.mark.parametrize(
    ("second", "percent"),
    [
        ({"cpu_stats": {"cpu_usage": {"total_usage": 300}, "system_cpu_usage": 2000, "online_cpus": 2}}, 40.0),
        ([], 0.0),
    ],
    ids=["a second one", "nothing"],
)
async def test_an_engine_that_gives_one_reading_is_asked_for_a_second(second: Any, percent: float) -> None:
    first = {
        "cpu_stats": {"cpu_usage": {"total_usage": 100}, "system_cpu_usage": 1000, "online_cpus": 2},
        "precpu_stats": {"cpu_usage": {"total_usage": 0}},
    }
    async with engine_double() as double:
        double.readings = [first, second]
        engine = DockerEngine(double.host, between_readings=0.0)
        try:
            assert (await engine.stats("web")).cpu_percent == percent
        finally:
            await engine.aclose()


@pytest.mark.parametrize(
    ("cache", "used"),
    [({"inactive_file": 100}, 400), ({"inactive_file": 1, "total_inactive_file": 200}, 300), ({}, 500)],
    ids=["version 2", "version 1", "none"],
)
def test_files_that_could_be_given_back_are_no_memory_in_use(cache: dict[str, int], used: int) -> None:
    assert stats({"memory_stats": {"usage": 500, "stats": cache}}).memory_bytes == used


# --- changing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tool", "status"), [("start", "running"), ("stop", "exited"), ("restart", "running")])
def test_a_container_is_started_and_stopped_by_its_id(tool: str, status: str) -> None:
    result, double = asked(tool, {"container": "web"})
    assert result.data["status"] == status
    assert double.asked[1].startswith("POST /containers/000000000000ffff")


@pytest.mark.parametrize("tool", ["start", "stop", "restart"])
def test_only_own_leaves_other_containers_unchanged(tool: str) -> None:
    result, double = asked(tool, {"container": "web"}, only_own=True)
    assert ("was not created by this server" in result.text, len(double.asked)) == (True, 1)
    assert ask(tool, {"container": "own"}, only_own=True)["own"] is True


def image_is_marked(double: EngineDouble) -> None:
    """Label the image of all containers as this server would."""
    double.image_config = {"Labels": {"dev.trunkline.server": "docker", "dev.trunkline.run": "1"}}


def image_is_gone(double: EngineDouble) -> None:
    """Remove the image of two containers that have this server's labels."""
    double.add("too", {"Labels": {"dev.trunkline.server": "docker", "dev.trunkline.run": "2"}})
    for each in list(double.containers.values())[1:]:
        each["Image"] = "sha256:gone"


@pytest.mark.parametrize("prepare", [image_is_marked, image_is_gone])
def test_a_label_that_may_come_from_the_image_does_not_mark_a_container_as_own(
    prepare: Callable[[EngineDouble], None],
) -> None:
    with pytest.raises(ToolError, match="was not created by this server"):
        ask("stop", {"container": "own"}, only_own=True, prepare=prepare)
    assert ask("inspect", {"container": "own"}, prepare=prepare)["own"] is False
    rows = ask("list_containers", {"all": True}, prepare=prepare)["containers"]
    assert not any(row["own"] for row in rows)


def test_the_label_of_the_server_alone_makes_no_container_own() -> None:
    def prepare(double: EngineDouble) -> None:
        list(double.containers.values())[1]["Config"]["Labels"] = {"dev.trunkline.server": "docker"}

    assert ask("inspect", {"container": "own"}, prepare=prepare)["own"] is False
    rows = ask("list_containers", {}, prepare=prepare)["containers"]
    assert [row["own"] for row in rows] == [False, False]


def test_an_image_is_looked_at_once_for_all_containers_of_a_list() -> None:
    def prepare(double: EngineDouble) -> None:
        double.add("too", {"Labels": {"dev.trunkline.run": "2"}})

    result, double = asked("list_containers", {"all": True}, prepare=prepare)
    assert [row["own"] for row in result.data["containers"]] == [False, True, True]
    assert [each.partition("?")[0].split("/")[1] for each in double.asked] == ["containers", "images"]


def test_a_container_has_no_exit_code_before_it_has_ended() -> None:
    codes = [ask(tool, {"container": "web"})["exit_code"] for tool in ("inspect", "restart", "stop")]
    assert codes == [None, None, 0]


def _tools(**options: Any) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        async with Client(make_server("unix:///nowhere.sock", **options)) as client:
            return {tool.name: tool.annotations for tool in await client.list_tools()}

    return run_async(main())


def test_annotations_state_what_tools_do_to_the_machine() -> None:
    hints = _tools()
    assert {name for name, each in hints.items() if each.destructive_hint} == {"stop", "restart", "run"}
    assert {name for name, each in hints.items() if not each.read_only_hint} == {"start", "stop", "restart", "run"}


# --- running ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_run_gives_exit_code_and_output_and_leaves_nothing(revision: str) -> None:
    arguments = {"image": IMAGE, "command": ["sh", "-c", "exit 3"]}
    result, double = asked("run", arguments, state={"exit_code": 3}, revision=revision)
    ran = result.data
    assert (ran["exit_code"], ran["logs"]["stdout"], ran["removed"]) == (3, "out 1\nout 2\n", True)
    assert double.names() == ["web", "own"]


def test_a_container_is_made_with_everything_closed() -> None:
    _, double = asked("run", {"image": IMAGE, "environment": {"A": "1"}})
    (body,) = double.bodies
    host = body["HostConfig"]
    assert body["Env"] == ["A=1"]
    assert body["Labels"]["dev.trunkline.server"] == "docker"
    assert (host["Privileged"], host["Binds"], host["Mounts"], host["Devices"]) == (False, [], [], [])
    assert (host["CapDrop"], host["CapAdd"], host["SecurityOpt"]) == (["ALL"], [], ["no-new-privileges:true"])
    assert (host["NetworkMode"], host["PidMode"], host["IpcMode"], host["PortBindings"]) == ("none", "", "private", {})
    assert (host["Memory"], host["MemorySwap"]) == (512 * 1024 * 1024, 512 * 1024 * 1024)
    assert (host["NanoCpus"], host["PidsLimit"], host["ReadonlyRootfs"]) == (1_000_000_000, 256, False)


def test_network_and_a_read_only_root_can_be_asked_for() -> None:
    _, double = asked("run", {"image": IMAGE, "network": True, "read_only": True})
    host = double.bodies[0]["HostConfig"]
    assert (host["NetworkMode"], host["ReadonlyRootfs"], list(host["Tmpfs"])) == ("bridge", True, ["/tmp"])


@pytest.mark.parametrize(("read_only", "tmpfs"), [(True, {"/data": "ro", "/odd": "ro", "/tmp": "rw"}), (False, {})])
def test_volumes_that_an_image_declares_are_closed_in_a_read_only_run(read_only: bool, tmpfs: dict[str, str]) -> None:
    volumes: dict[str, Any] = {"Volumes": {"/data": {}, "/tmp/": {}, "odd": {}}}
    _, double = asked("run", {"image": IMAGE, "read_only": read_only}, state={"image_config": volumes})
    assert {path: options[:2] for path, options in double.bodies[0]["HostConfig"]["Tmpfs"].items()} == tmpfs


@pytest.mark.parametrize(
    ("is_podman", "attachment", "cut"),
    [
        pytest.param(True, b"x" * (8 * 1024 * 1024 + 1), True, id="much"),
        pytest.param(True, b"x" * 1000, False, id="little"),
        pytest.param(True, None, False, id="not counted"),
        pytest.param(False, b"x" * (8 * 1024 * 1024 + 1), False, id="docker"),
    ],
)
def test_output_dropped_by_podman_is_reported_as_cut(is_podman: bool, attachment: bytes | None, cut: bool) -> None:
    result, double = asked("run", {"image": IMAGE}, state={"is_podman": is_podman, "attachment": attachment})
    assert result.data["logs"] == {"stdout": "out 1\nout 2\n", "stderr": "err 1\n", "cut": cut}
    steps = [each.partition("?")[0].rpartition("/")[2] for each in double.asked]
    assert steps[:3] == (["create", "attach", "start"] if is_podman else ["create", "start", "wait"])


def test_a_detached_container_stays_and_its_output_is_not_counted() -> None:
    result, double = asked("run", {"image": IMAGE, "detach": True, "name": "mine"}, state={"is_podman": True})
    assert (result.data["name"], result.data["removed"], result.data["exit_code"]) == ("mine", False, None)
    assert double.names() == ["web", "own", "mine"]
    assert not any("attach" in each for each in double.asked)


def test_a_run_that_takes_too_long_is_killed_and_removed() -> None:
    result, double = asked("run", {"image": IMAGE, "seconds": 1}, state={"exit_code": None})
    ran = result.data
    assert (ran["timed_out"], ran["exit_code"], ran["logs"]["stderr"]) == (True, None, "err 1\n")
    assert (double.names(), sum("/kill" in each for each in double.asked)) == (["web", "own"], 1)


def test_a_run_that_writes_too_much_gives_its_last_lines() -> None:
    ran = ask("run", {"image": IMAGE}, state={"floods": True})
    assert (ran["exit_code"], ran["logs"]["stdout"], ran["logs"]["cut"]) == (0, "out 1\nout 2\n", True)


async def test_a_cancelled_run_leaves_no_container() -> None:
    async with engine_double() as double:
        double.exit_code = None
        async with Client(make_server(double.host), revision="2025-11-25") as client:
            call = asyncio.ensure_future(client.call_tool("run", {"image": IMAGE}))
            await double.waiting.wait()
            call.cancel()
            await asyncio.wait([call])
            await double.removed.wait()
        assert double.names() == ["web", "own"]


async def test_a_run_that_is_cancelled_while_its_container_is_made_leaves_none() -> None:
    async with engine_double() as double:
        double.may_create.clear()
        async with Client(make_server(double.host), revision="2025-11-25") as client:
            call = asyncio.ensure_future(client.call_tool("run", {"image": IMAGE}))
            await double.creating.wait()
            call.cancel()
            await asyncio.wait([call])
            await client.call_tool("list_images")
            double.may_create.set()
            await double.removed.wait()
        assert double.names() == ["web", "own"]


async def test_a_client_that_goes_away_leaves_no_container() -> None:
    async with engine_double() as double:
        double.exit_code = None
        async with Client(make_server(double.host), revision="2025-11-25") as client:
            call = asyncio.ensure_future(client.call_tool("run", {"image": IMAGE}))
            await double.waiting.wait()
        with pytest.raises(ConnectionLost):
            await call
        assert double.names() == ["web", "own"]


@pytest.mark.parametrize(("lines", "cut"), [(32_768, False), (32_769, True)])
def test_a_run_gives_all_its_lines_or_says_that_some_are_missing(lines: int, cut: bool) -> None:
    logs = ask("run", {"image": IMAGE}, state={"log": frame(1, b"x\n" * lines)})["logs"]
    assert (len(logs["stdout"]), logs["cut"]) == (65536, cut)


@pytest.mark.parametrize(
    ("arguments", "state", "words"),
    [
        ({"detach": True}, {"start_status": 400}, "exec: no such file"),
        ({}, {"drop_creation": True}, "closed the connection"),
        ({"name": "web"}, {}, "already in use"),
        ({"image": "busybox:1"}, {}, "docker pull busybox:1"),
    ],
    ids=["does-not-start", "making-not-answered", "name-in-use", "no-image"],
)
def test_a_run_that_fails_says_why_and_leaves_no_container(
    arguments: dict[str, Any], state: dict[str, Any], words: str
) -> None:
    result, double = asked("run", {"image": IMAGE, **arguments}, state=state)
    assert (result.is_error, words in result.text) == (True, True)
    assert double.names() == ["web", "own"]


# --- the engine ------------------------------------------------------------------------------------------------------


async def test_an_engine_that_does_not_exist_is_a_clear_error() -> None:
    async with Client(make_server("unix:///nowhere/docker.sock")) as client:
        with pytest.raises(ToolError) as caught:
            await client.call_tool("list_containers", {})
    reason = "No such file or directory"
    fix = "Start the engine, or set DOCKER_HOST to a socket that you may use"
    assert str(caught.value) == f"Docker cannot be reached at /nowhere/docker.sock ({reason}). {fix}"


@pytest.mark.parametrize(
    "host", ["tcp://127.0.0.1:2375", "ssh://me@host", "npipe:////./pipe/x", "", "unix://x", "/run/x"]
)
def test_an_engine_elsewhere_is_refused_at_the_start(host: str) -> None:
    with pytest.raises(ConfigError, match="give unix:///path"):
        make_server(host)


async def test_the_options_of_the_command_reach_the_server() -> None:
    async with (
        engine_double() as double,
        Client(started("docker", "--host", double.host, "--read-only").server) as client,
    ):
        assert len(await client.list_tools()) == 5
        assert (await client.call_tool("list_images")).data["images"][0]["tags"] == ["alpine:3.20"]


def test_a_container_that_does_not_exist_is_a_clear_error() -> None:
    with pytest.raises(ToolError, match="Docker answered 404: No such container"):
        ask("stop", {"container": "nowhere"})
