"""The drop-in proof of the Redis server: every tool of the archived one, each side on a fresh redis-server."""

from __future__ import annotations

import shutil
import sys
from types import MappingProxyType

from tests.interop.dropin.harness import NPM, Call, Script, npm, ours

__all__ = ["SCRIPT"]

#: Starts the redis-server that is named first on a free port of this machine, and the rest of the words beside it, with
#: its address as the last one. Both are in one process group, which whoever started them ends as a whole.
_BESIDE = """\
import socket, subprocess, sys, time
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
options = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
redis = subprocess.Popen([sys.argv[1], *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
try:
    for _ in range(1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                break
        time.sleep(0.01)
    sys.exit(subprocess.call([*sys.argv[2:], "redis://127.0.0.1:" + port]))
finally:
    redis.terminate()
"""
#: A word that names nothing makes the proof skip where there is no redis-server.
_SERVER = shutil.which("redis-server") or str(NPM / "no-redis-server")
_START = [sys.executable, "-c", _BESIDE, _SERVER]

STEPS = (
    Call("list"),
    Call("set", {"key": "user:1", "value": "Ann"}),
    Call("set", {"key": "user:2", "value": "", "expireSeconds": 100}),
    Call("get", {"key": "user:1"}),
    Call("get", {"key": "user:2"}),
    Call("get", {"key": "nobody"}),
    Call("list", {"pattern": "user:1*"}),
    Call("set", {"key": "\u043a\u043b\u044e\u0447", "value": "\u2713 \n two lines"}),
    Call("get", {"key": "\u043a\u043b\u044e\u0447"}),
    Call("delete", {"key": "user:1"}),
    Call("delete", {"key": ["user:2", "\u043a\u043b\u044e\u0447", "nobody"]}),
    Call("delete", {"key": "user:1"}),
    Call("list", {"pattern": "*"}),
    # A name with a line feed.
    Call("set", {"key": "one\ntwo", "value": "x"}),
    Call("list", name="list of a key with a line feed"),
    # Errors: no time to live, no keys, an argument too few, of another type, a tool that is not there.
    Call("set", {"key": "a", "value": "b", "expireSeconds": 0}, name="set for no time"),
    Call("set", {"key": "a", "value": "b", "expireSeconds": -1}, name="set for less than no time"),
    Call("delete", {"key": []}, name="delete nothing"),
    Call("set", {"key": "a"}, name="set without a value"),
    Call("get", {"key": 7}, name="get a number"),
    Call("get", {"key": "a", "extra": 1}, name="get with an argument too many"),
    Call("no_such_tool"),
)

_ERRORS = "A failure is a result with isError and a sentence that says what to do."

DIFFERENCES = {
    "server:capabilities/*": "Log messages and changes of the list of tools are announced as possible.",
    "tools:*/annotations": "Hints say which tools only read and which destroy.",
    "list of a key with a line feed:*": "A line of the list is a key: control characters in a name are written out.",
    "set for no time:*": "An expiry of 0 is refused: the official server keeps such a key for good.",
    "set for less than no time:*": _ERRORS,
    "delete nothing:*": _ERRORS,
    "set without a value:*": _ERRORS,
    "get a number:*": _ERRORS,
    "get with an argument too many:*": "An argument that there is not is refused: a misspelt one would be lost.",
    "call no_such_tool:*": "An unknown tool is an error of the protocol, as the specification says.",
}

SCRIPT = Script(
    server="redis",
    official=[*_START, *npm("redis")],
    ours=[*_START, *ours("redis")],
    steps=STEPS,
    differences=MappingProxyType(DIFFERENCES),
)
