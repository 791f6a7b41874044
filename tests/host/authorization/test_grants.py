"""What was allowed earlier, and what that does not allow."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import trunkline
from trunkline.errors import ConfigError
from trunkline.host import state_files
from trunkline.host.authorization.grants import (
    MAX_TOOLS_PER_GRANT,
    ArgumentPattern,
    Grant,
    GrantStore,
    ServerTool,
    SessionGrants,
    allow_command,
    argument_pattern,
    covers,
    is_same_grant,
    make_deferred_grant,
    make_grant,
    make_server_grant,
)
from trunkline.host.authorization.policy.decisions import Act
from trunkline.host.state_files import PathLock

DAY = 24 * 3600.0
ACT = Act(
    kind="tool",
    server="files",
    name="write",
    arguments={"path": "/work/a.txt", "text": "x"},
    pin="sha256:1",
    principal="ann",
    profile="home",
    session="s1",
)


def always(**more: Any) -> Grant:
    """Make a grant for any arguments."""
    return make_grant(ACT, "always", now=0.0, **more)


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        """Start at the epoch."""
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where grants may be kept."""
    return tmp_path / "state" / "grants.json"


@pytest.fixture
def clock() -> Clock:
    """A clock for a book."""
    return Clock()


@pytest.fixture
def book(path: Path, clock: Clock) -> GrantStore:
    """An empty book."""
    return GrantStore(path, clock=clock)


# --- what a grant covers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "prompt"},
        {"server": "files2"},
        {"name": "Write"},
        {"pin": "sha256:2"},
        {"pin": None},
        {"principal": "bob"},
        {"principal": None},
        {"profile": "work"},
        {"profile": None},
        {"tainted": True},
    ],
    ids=str,
)
def test_a_grant_covers_nothing_else(change: dict[str, Any]) -> None:
    assert not covers(always(), replace(ACT, **change), 1.0)


@pytest.mark.parametrize(
    "change", [{"session": "s2"}, {"session": None}, {"caller": "model"}, {"arguments": {}}], ids=str
)
def test_what_always_does_not_hang_on(change: dict[str, Any]) -> None:
    assert covers(always(), replace(ACT, **change), 1.0)


def test_a_grant_of_one_session_is_none_in_another() -> None:
    grant = make_grant(ACT, "session", now=0.0)
    assert covers(grant, replace(ACT, arguments={"path": "/etc"}), 1.0)
    assert not covers(grant, replace(ACT, session="s2"), 1.0)


@pytest.mark.parametrize(("now", "covered"), [(30 * DAY - 1, True), (30 * DAY, False)])
def test_a_grant_expires_after_thirty_days_by_default(now: float, covered: bool) -> None:
    assert covers(always(), ACT, now) is covered


def test_a_tool_without_a_pin_cannot_be_granted() -> None:
    with pytest.raises(ValueError, match="files/write has no pin"):
        make_grant(replace(ACT, pin=None), "session", now=0.0)


def test_a_resource_needs_no_pin() -> None:
    act = Act(kind="resource", server="files", name="file:///a")
    assert covers(make_grant(act, "always", now=0.0), act, 1.0)


def test_likeness_is_said_or_the_grant_is_none() -> None:
    with pytest.raises(ValueError, match="a grant has an argument pattern if and only if"):
        make_grant(ACT, "alike", now=0.0)
    with pytest.raises(ValueError, match="a grant has an argument pattern if and only if"):
        always(match=argument_pattern(ACT.arguments))


# --- arguments like these --------------------------------------------------------------------------------------------


def like(vary: str | None, pattern: str | None = None) -> ArgumentPattern:
    """Say what is like the arguments of the act."""
    return argument_pattern(ACT.arguments, vary=vary, like=pattern)


LESS, MORE = {"path": "/work/a.txt"}, {"path": "/work/a.txt", "text": "x", "mode": "w"}


def test_exactly_these_arguments() -> None:
    same = [{"path": "/work/a.txt", "text": "x"}, {"text": "x", "path": "/work/a.txt"}]
    others: list[dict[str, Any]] = [{"path": "/work/b.txt", "text": "x"}, LESS, MORE, {}]
    assert [arguments for arguments in (*same, *others) if like(None).matches(arguments)] == same


def test_one_argument_may_be_anything() -> None:
    alike: list[dict[str, Any]] = [{"path": "/etc/passwd", "text": "x"}, {"path": 5, "text": "x"}]
    others = [{"path": "/work/a.txt", "text": "y"}, {"text": "x"}, MORE]
    assert [arguments for arguments in (*alike, *others) if like("/path").matches(arguments)] == alike


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (0, False), (1, 1.0), ("1", 1), (None, False), ([], {})], ids=str
)
def test_values_that_python_takes_for_equal_are_not(one: Any, other: Any) -> None:
    assert not argument_pattern({"n": one}).matches({"n": other})


#: Of each pattern: what is like it, and what is not.
PATTERNS: dict[str, tuple[list[str], list[str]]] = {
    "/work/**": (
        ["/work/a.txt", "/work/deep/er/a.txt", "/work", "/work/"],
        [
            *("/workshop/a.txt", "/etc/work/a", "work/a", "/work/../etc/passwd", "/work/..", "/work/./a"),
            *("/work/%2e%2e/etc", "/work/%2E%2E%2Fetc", "/work\\..\\etc", "/work/a\0b"),
        ],
    ),
    "/work/*": (["/work/a.txt"], ["/work/deep/a.txt"]),
    "/work/*.txt": (["/work/a.txt"], ["/work/a.md"]),
    "/work/**/*.txt": (["/work/a.txt", "/work/x/y/a.txt"], ["/work/x/y/a.md"]),
    "/**/b/**/d": (["/a/b/c/b/e/d"], ["/a/c/e/d"]),
    "https://api.example.com/**": (
        ["https://api.example.com/v1/x"],
        ["https://api.example.com.evil.com/v1", "https://api.example.com@evil.com/v1"],
    ),
    "hello*": (["hello world"], ["hello/../x", "Hello"]),
}


@pytest.mark.parametrize(("pattern", "values"), PATTERNS.items())
def test_one_argument_may_be_like_a_pattern(pattern: str, values: tuple[list[str], list[str]]) -> None:
    likeness, (fits, others) = like("/path", pattern), values
    assert [value for value in (*fits, *others) if likeness.matches({"path": value, "text": "x"})] == fits


@pytest.mark.parametrize("value", [5, None, ["/work/a"], {"x": "/work/a"}], ids=str)
def test_only_a_text_is_like_a_pattern(value: Any) -> None:
    assert not like("/path", "/work/**").matches({"path": value, "text": "x"})


def test_an_argument_inside_another_may_differ() -> None:
    likeness = argument_pattern({"files": [{"path": "/a", "mode": "r"}, {"path": "/b"}]}, vary="/files/0/path")
    assert likeness.matches({"files": [{"path": "/c", "mode": "r"}, {"path": "/b"}]})
    assert not likeness.matches({"files": [{"path": "/a", "mode": "r"}, {"path": "/c"}]})
    assert not likeness.matches({"files": [{"path": "/a", "mode": "w"}, {"path": "/b"}]})
    assert not likeness.matches({"files": []})


@pytest.mark.parametrize("vary", ["/nowhere", "/path/deeper", "path", "/text/0"])
def test_an_argument_that_is_not_there_cannot_differ(vary: str) -> None:
    with pytest.raises(ValueError, match="there is no argument at"):
        like(vary)


def test_a_pattern_that_leads_up_is_refused() -> None:
    with pytest.raises(ValueError, match="matches nothing"):
        like("/path", "/work/../**")


def test_many_stars_take_no_time() -> None:
    likeness = argument_pattern({"path": "x"}, vary="/path", like="/".join(["**", "a"] * 30))
    assert not likeness.matches({"path": "a/" * 2000 + "b"})


def test_the_arguments_are_kept_as_a_digest_and_redacted() -> None:
    kept = argument_pattern({"path": "/a", "password": "hunter2"}, vary="/path")
    assert kept.shown == {"path": "/a", "password": "***"}
    assert kept.matches({"path": "/b", "password": "hunter2"})
    assert not kept.matches({"path": "/b", "password": "***"})


def test_a_grant_for_arguments_covers_none_while_only_the_name_is_judged() -> None:
    grant = make_grant(ACT, "alike", now=0.0, match=argument_pattern({}, vary=None))
    assert not covers(grant, replace(ACT, arguments=None), 1.0)


# --- of a session ----------------------------------------------------------------------------------------------------


def test_a_session_remembers_until_it_is_taken_back() -> None:
    kept, grant = SessionGrants(), make_grant(ACT, "session", now=0.0)
    kept.add(grant)
    assert kept.find(ACT, 1.0) == grant
    assert kept.all() == [grant]
    assert kept.revoke(grant.id)
    assert not kept.revoke(grant.id)
    assert kept.find(ACT, 1.0) is None
    assert not kept.use(grant)


def test_a_counted_grant_of_a_session_is_used_up() -> None:
    kept, grant = SessionGrants(), make_grant(ACT, "session", now=0.0, uses=2)
    kept.add(grant)
    assert [kept.use(grant) for _ in range(3)] == [True, True, False]
    assert kept.find(ACT, 1.0) is None


# --- in a file -------------------------------------------------------------------------------------------------------


def test_a_revocation_holds_in_other_processes_at_once(book: GrantStore, path: Path, clock: Clock) -> None:
    other, grant = GrantStore(path, clock=clock), always()
    book.add(grant)
    assert other.find(ACT) == grant
    assert book.revoke(grant.id)
    assert other.find(ACT) is None
    assert not other.use(grant)


def test_all_can_be_revoked(book: GrantStore) -> None:
    book.add(always())
    book.add(always())
    assert book.revoke_all() == 2
    assert book.all() == []


def test_a_counted_grant_is_used_up(book: GrantStore) -> None:
    grant = always(uses=1)
    book.add(grant)
    assert [book.use(grant) for _ in range(2)] == [True, False]
    assert book.find(ACT) is None


def test_a_grant_that_is_over_is_not_listed_and_later_forgotten(book: GrantStore, path: Path, clock: Clock) -> None:
    book.add(always(expires=5.0))
    clock.now = 6.0
    assert book.find(ACT) is None
    assert book.all() == []
    book.add(make_grant(ACT, "always", now=6.0))
    assert len(json.loads(path.read_bytes())["grants"]) == 1


def test_a_grant_of_a_session_is_not_kept(book: GrantStore, path: Path) -> None:
    with pytest.raises(ValueError, match="session"):
        book.add(make_grant(ACT, "session", now=0.0))
    assert not path.exists()


def test_the_file_is_its_owners_alone(book: GrantStore, path: Path) -> None:
    book.add(always())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_all_of_a_grant_comes_back(book: GrantStore, path: Path) -> None:
    grant = make_grant(
        ACT, "alike", now=1.0, match=argument_pattern(ACT.arguments, vary="/path", like="/work/**"), uses=3
    )
    book.add(grant)
    assert GrantStore(path, clock=lambda: 1.0).all() == [grant]


BROKEN = [
    pytest.param(b"", id="empty"),
    pytest.param(b"{", id="half"),
    pytest.param(b"[]", id="a list"),
    pytest.param(b'{"format":1,"grants":[{"id":"a"}]}', id="a member missing"),
    pytest.param(b'{"format":2,"grants":[]}', id="another format"),
    pytest.param(b'{"format":1,"grants":[],"more":1}', id="a member too many"),
    pytest.param(b"\xff\xfe", id="no text"),
]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_grants_nothing_is_reported_and_not_written_over(
    content: bytes, book: GrantStore, path: Path
) -> None:
    book.add(always())
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"grants\.json: the grants cannot be read, so none is used"):
        book.find(ACT)
    with pytest.raises(ConfigError):
        book.add(always())
    with pytest.raises(ConfigError):
        book.revoke_all()
    assert path.read_bytes() == content


def test_a_file_that_others_can_write_grants_nothing(book: GrantStore, path: Path) -> None:
    book.add(always())
    path.chmod(0o666)
    with pytest.raises(ConfigError, match=r"others can change grants in it: check the file, then run chmod 600"):
        GrantStore(path).find(ACT)


def test_a_file_that_is_deleted_grants_nothing(book: GrantStore, path: Path) -> None:
    book.add(always())
    assert book.find(ACT) is not None
    path.unlink()
    assert book.find(ACT) is None


def test_a_process_that_holds_the_lock_for_ever_is_named(
    book: GrantStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.add(always())
    monkeypatch.setattr(state_files, "_LONGEST_WAIT", 0.01)
    lock = PathLock(f"{path}.lock")
    lock.acquire()
    with pytest.raises(ConfigError, match="another process holds"):
        book.revoke_all()
    lock.close()
    assert book.revoke_all() == 1


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_fails_leaves_what_there_was(
    step: str, book: GrantStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    book.add(always())
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, step, refuse)
        with pytest.raises(ConfigError, match=r"cannot be saved: No space left on device\."):
            book.add(always())
    assert path.read_bytes() == before
    assert sorted(each.name for each in path.parent.iterdir()) == ["grants.json", "grants.json.lock"]


ADDING = """
import sys
from trunkline.host.authorization.grants import GrantStore, make_grant
from trunkline.host.authorization.policy.decisions import Act
book = GrantStore(sys.argv[1])
for number in range(20):
    book.add(make_grant(Act(kind="prompt", server=sys.argv[2], name=str(number)), "always", now=0.0, expires=1e12))
"""


def test_two_processes_at_once_lose_nothing(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(trunkline.__file__).parents[1])}
    command = [sys.executable, "-c", ADDING, str(path)]
    processes = [subprocess.Popen([*command, name], env=environment) for name in "ab"]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert len(GrantStore(path).all()) == 40


# --- several tools of a server ---------------------------------------------------------------------------------------

TOOLS = (ServerTool("write", "sha256:1"), ServerTool("read", "sha256:2", True))


def test_a_grant_for_several_tools_comes_back_as_one(book: GrantStore, path: Path, clock: Clock) -> None:
    grant = make_server_grant(ACT, "always", TOOLS, now=0.0)
    book.add(grant)
    assert GrantStore(path, clock=clock).all() == [grant]
    assert (grant.tools, grant.name) == ({"write": "sha256:1", "read": "sha256:2"}, "")
    assert grant.expires == 30 * DAY
    assert book.revoke(grant.id)
    assert book.find(ACT) is None


@pytest.mark.parametrize("count", [0, MAX_TOOLS_PER_GRANT + 1])
def test_a_grant_is_bounded(count: int) -> None:
    tools = [ServerTool(str(number), "x") for number in range(count)]
    with pytest.raises(ValueError, match=f"files has {count} such tools; a grant is for 1 to {MAX_TOOLS_PER_GRANT}"):
        make_server_grant(ACT, "always", tools, now=0.0)


def test_two_grants_for_the_same_are_known_as_such() -> None:
    one, other = always(), make_grant(ACT, "always", now=5.0)
    assert is_same_grant(one, other)
    assert not is_same_grant(one, replace(other, uses=1))


def test_a_grant_that_waits_allows_nothing(book: GrantStore) -> None:
    act = replace(ACT, principal=None, profile=None)
    book.add(make_deferred_grant("files", "reach", now=0.0))
    assert book.find(act) is None
    assert book.find(replace(act, name="", pin=None)) is None


def test_a_grant_that_waited_is_for_the_read_only_tools_of_the_list(book: GrantStore, path: Path, clock: Clock) -> None:
    waiting = make_deferred_grant("files", "reach", now=0.0)
    book.add(waiting)
    other = GrantStore(path, clock=clock)
    assert other.deferred() == [waiting]
    other.resolve(waiting, TOOLS)
    assert book.deferred() == []
    (grant,) = book.all()
    assert (grant.id, grant.tools, grant.expires) == (waiting.id, {"read": "sha256:2"}, None)
    # What another process settled first stays as it is.
    book.resolve(waiting, [*TOOLS, ServerTool("late", "sha256:3", True)])
    assert book.all() == [grant]


def test_a_grant_that_was_revoked_while_it_waited_is_not_settled(book: GrantStore) -> None:
    waiting = make_deferred_grant("files", "reach", now=0.0)
    book.add(waiting)
    book.revoke(waiting.id)
    book.resolve(waiting, TOOLS)
    assert book.all() == []


def test_a_grant_that_waited_for_tools_that_are_not_there_is_gone(book: GrantStore) -> None:
    waiting = make_deferred_grant("files", "reach", now=0.0)
    book.add(waiting)
    book.resolve(waiting, TOOLS[:1])
    assert book.all() == []


def test_what_no_grant_can_allow_has_no_command() -> None:
    assert allow_command(replace(ACT, pin=None)) is None
    assert allow_command(Act(kind="resource", server="files", name="file:///a")) is None
