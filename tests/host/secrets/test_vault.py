"""Where secrets are kept and looked up, how they get into an entry, and how they are known again."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import trunkline
import trunkline.types as t
from tests.auth.test_token_store import Ring
from tests.host.gateway.support import allow, gone, until
from tests.support import run_async
from trunkline.auth.credential_store import CredentialStore, FileStore, KeyringStore, MemoryStore
from trunkline.errors import AuthError, ConfigError, RequestFailed, ServerUnavailable
from trunkline.host.assembly import in_project_folder
from trunkline.host.config.loading import entry_from_mapping
from trunkline.host.config.model import ServerEntry, Source
from trunkline.host.host import Host
from trunkline.host.integrity.fingerprints import take_fingerprint
from trunkline.host.integrity.trust import TrustStore
from trunkline.host.secrets.references import SecretReference, SecretTemplate
from trunkline.host.secrets.registry import LOGGERS, LogRedaction, SecretRegistry
from trunkline.host.secrets.resolve import resolve_secrets
from trunkline.host.secrets.vault import (
    SecretStoreName,
    StoredSecret,
    Vault,
    open_stores,
    read_commands,
    run_secret_command,
)
from trunkline.host.upstreams.supervision.clients import make_client

SECRET = "s3cret of ours"


class Locked(MemoryStore):
    """A keyring that nobody unlocks."""

    async def get(self, key: str) -> str | None:
        """Refuse."""
        raise AuthError("locked") from PermissionError()


def vault(
    *stores: tuple[SecretStoreName, CredentialStore],
    environ: Mapping[str, str] | None = None,
    commands: Path | None = None,
) -> Vault:
    """Make a vault of these places, in memory if none is given."""
    places: dict[SecretStoreName, CredentialStore] = dict(stores) or {"file": MemoryStore()}
    file = Path("/nowhere/secrets.toml") if commands is None else commands
    return Vault(places, environ={} if environ is None else environ, commands=file, clock=lambda: 12.0)


# --- keeping ---------------------------------------------------------------------------------------------------------


def test_the_file_is_encrypted_and_its_owners_alone(tmp_path: Path) -> None:
    run_async(Vault(open_stores(tmp_path)).put("github", SECRET))
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert {path.name for path in files} == {"secrets", "secrets.key"}
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


async def test_the_keyring_is_asked_before_the_file() -> None:
    file = MemoryStore()
    await vault(("file", file)).put("a", "in the file")
    both = vault(("keyring", MemoryStore()), ("file", file))
    assert await both.put("a", "in the keyring") == "keyring"
    assert await both.read(SecretReference("a")) == "in the keyring"
    assert await file.get("secret/a") == "in the file"


async def test_a_keeper_that_is_named_is_the_only_one_asked() -> None:
    both = vault(("keyring", MemoryStore()), ("file", MemoryStore()))
    await both.put("a", "x", place="file")
    assert await both.read(SecretReference("a", "file")) == "x"
    with pytest.raises(ConfigError, match=r"there is no secret keyring/a; run: .* secret set a --store keyring$"):
        await both.read(SecretReference("a", "keyring"))


async def test_a_locked_keyring_does_not_keep_the_file_from_being_asked() -> None:
    file = MemoryStore()
    await vault(("file", file)).put("a", SECRET)
    assert await vault(("keyring", Locked()), ("file", file)).read(SecretReference("a")) == SECRET


def test_a_locked_keyring_is_reported_if_the_file_lacks_the_secret() -> None:
    locked = vault(("keyring", Locked()), ("file", MemoryStore()))
    with pytest.raises(ConfigError, match=r"keyring cannot be used \(PermissionError\): unlock it, or"):
        run_async(locked.read(SecretReference("a")))


async def test_secrets_in_a_keyring_are_no_logins(tmp_path: Path) -> None:
    ring = Ring()
    kept = vault(("keyring", KeyringStore(ring, folder=tmp_path, service="trunkline secrets")))
    await kept.put("index", SECRET)
    assert await kept.read(SecretReference("index")) == SECRET
    assert [each.name for each in await kept.list_secrets()] == ["index"]
    assert await KeyringStore(ring, folder=tmp_path).keys() == []


async def test_a_list_names_secrets_with_their_place_and_time(tmp_path: Path) -> None:
    named = commands(tmp_path, '[commands]\nb = ["true"]\n')
    both = vault(("keyring", MemoryStore()), ("file", MemoryStore()), commands=named)
    await both.put("a", "1")
    await both.put("c", "2", place="file")
    assert await both.list_secrets() == [
        StoredSecret(name="a", source="keyring", set_at=12.0),
        StoredSecret(name="b", source="cmd"),
        StoredSecret(name="c", source="file", set_at=12.0),
    ]


async def test_a_secret_is_removed_wherever_it_is() -> None:
    both = vault(("keyring", MemoryStore()), ("file", MemoryStore()))
    await both.put("a", "1")
    await both.put("a", "2", place="file")
    assert (await both.remove("a"), await both.remove("a")) == (["keyring", "file"], [])
    assert await both.list_secrets() == []


@pytest.mark.parametrize("name", ["", "a b", "a/b", "env/a", "secret://a", "a=hunter2", "x" * 129])
def test_what_is_no_name_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^not a valid name for a secret: use only letters"):
        run_async(vault().put(name, SECRET))


def test_nothing_is_not_kept() -> None:
    with pytest.raises(ConfigError, match="the secret a is empty"):
        run_async(vault().put("a", ""))


def test_a_place_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="secrets cannot be stored in the keyring here: this machine has none"):
        run_async(Vault(open_stores(tmp_path)).put("a", "1", place="keyring"))


def test_a_changed_file_is_reported_and_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "secrets"
    run_async(Vault(open_stores(tmp_path)).put("a", "1"))
    store.write_bytes(b"x" * 100)
    with pytest.raises(ConfigError, match=r"Cannot decrypt the secrets in .* and set the secrets again\.$"):
        run_async(Vault(open_stores(tmp_path)).put("b", "2"))
    assert store.read_bytes() == b"x" * 100


async def test_times_that_cannot_be_read_are_as_good_as_none() -> None:
    store = MemoryStore()
    await store.put("times", "{")
    await store.put("secret/a", "1")
    assert await vault(("file", store)).list_secrets() == [StoredSecret(name="a", source="file")]


def test_a_missing_extra_is_reported() -> None:
    class Bare(MemoryStore):
        async def get(self, key: str) -> str | None:
            raise ModuleNotFoundError("no cryptography", name="cryptography")

    with pytest.raises(ConfigError, match=r"secrets need cryptography: pip install 'trunkline\[auth\]'"):
        run_async(vault(("file", Bare())).read(SecretReference("a")))


def test_the_users_own_places_are_found_when_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path))
    run_async(Vault().put("a", SECRET))
    (tmp_path / "secrets.toml").write_text('[commands]\nb = ["true"]\n')
    assert [each.name for each in run_async(Vault().list_secrets())] == ["a", "b"]


def test_a_keyring_of_the_system_is_used_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring

    monkeypatch.delenv("TRUNKLINE_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(keyring, "get_keyring", Ring)
    assert list(open_stores()) == ["keyring", "file"]


# --- looking up ------------------------------------------------------------------------------------------------------


def test_a_variable_of_the_environment_is_a_secret() -> None:
    assert run_async(vault(environ={"T": f"{SECRET}\n"}).read(SecretReference("T", "env"))) == SECRET


def test_a_variable_that_is_not_set_is_reported() -> None:
    with pytest.raises(ConfigError, match="the environment variable T, which should contain a secret, is not set"):
        run_async(vault(environ={"T": ""}).read(SecretReference("T", "env")))


async def test_a_reference_is_looked_up_even_while_a_loop_runs() -> None:
    assert vault(environ={"T": SECRET}).read_blocking("secret://env/T") == SECRET


@pytest.mark.parametrize("reference", ["env/T", "secret://a b", ""])
def test_what_is_no_reference_is_refused(reference: str) -> None:
    with pytest.raises(ConfigError, match="the form secret://name"):
        vault().read_blocking(reference)


def commands(folder: Path, text: str) -> Path:
    """Write the file that names commands."""
    path = folder / "secrets.toml"
    path.write_text(text)
    return path


def python(code: str) -> tuple[str, ...]:
    """Give the words that run some code."""
    return (sys.executable, "-S", "-c", code)


def test_a_command_of_the_users_gives_a_secret(tmp_path: Path) -> None:
    code = "import os; print(os.environ['WORD'], '$HOME ;', end=' \\n\\n')"
    words = ", ".join(f"'''{word}'''" for word in python(code))
    path = commands(tmp_path, f"[commands]\ngithub = [{words}]\n")
    asked = vault(commands=path, environ={"WORD": "word"})
    assert run_async(asked.read(SecretReference("github", "cmd"))) == "word $HOME ;"


def test_a_command_that_is_not_configured_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r'there is no command for the secret a; add a = \["..."\] under \[commands\] in '
    ):
        run_async(vault(commands=tmp_path / "secrets.toml").read(SecretReference("a", "cmd")))


FAILING: dict[str, tuple[tuple[str, ...], str]] = {
    "status": (python("import sys; sys.exit('s3cret')"), r"exited with status 1; run it yourself to see why$"),
    "nothing": (python("print(' ')"), "printed nothing$"),
    "binary": (python(r"import sys; sys.stdout.buffer.write(b'\xff')"), "printed text that is not UTF-8$"),
    "much": (python("while True: print('s3cret' * 100)"), "printed more than 64 KiB, which cannot be a secret$"),
    "missing": (
        ("/nowhere/program",),
        "cannot run the command for the secret .*: /nowhere/program: No such file or directory$",
    ),
}


@pytest.mark.parametrize(("words", "said"), FAILING.values(), ids=FAILING)
def test_a_failing_command_is_reported_without_its_output(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as failure:
        run_async(run_secret_command("a", words, environ={}))
    assert "s3cret" not in str(failure.value)


def test_what_is_shown_of_a_vault_and_of_a_template_has_no_secret(tmp_path: Path) -> None:
    template = SecretTemplate(("env", "TOKEN"), ("Bearer from-a-variable ", SecretReference("github", "keyring")))
    assert repr(template) == "SecretTemplate('env.TOKEN', keyring/github)"
    assert repr(Vault(open_stores(tmp_path), environ={"TOKEN": SECRET})) == "Vault()"


def over(pid: int) -> bool:
    """Tell whether a process is over; whoever inherited it may not have heard of that yet."""
    if gone(pid):
        return True
    # Its name stands in brackets before its state.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; pid = os.fork()\n"
        "if pid == 0: time.sleep(60)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(pid))\n"
    )

    with pytest.raises(ConfigError, match=r"took over 0\.5 s$"):
        await run_secret_command("a", python(code), environ={}, seconds=0.5)
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: over(pid))


async def test_giving_up_ends_a_command(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    code = f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    task = asyncio.create_task(run_secret_command("a", python(code), environ={}))
    await until(lambda: started.exists() and started.read_text() != "")
    task.cancel()
    await asyncio.wait([task])
    pid = int(started.read_text())
    await until(lambda: over(pid))


BROKEN: dict[str, tuple[str, str]] = {
    "no-toml": ("[commands", "not valid TOML"),
    "table": ("[command]\na = ['x']", r"command: unknown; the only table is \[commands\]"),
    "commands": ("commands = 1", "commands: expected a table"),
    "shell": ("[commands]\na = 'op read x'", r"commands\.a: expected a list of words"),
    "empty": ("[commands]\na = []", r"commands\.a: expected a list of words"),
    "number": ("[commands]\na = ['x', 1]", r"commands\.a: expected a list of words"),
    "null": ('[commands]\na = ["x\\u0000"]', r"commands\.a: expected a list of words"),
}


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_an_invalid_file_of_commands_is_reported(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_commands(commands(tmp_path, text))


def test_a_file_of_commands_that_others_may_change_is_not_believed(tmp_path: Path) -> None:
    path = commands(tmp_path, "[commands]\na = ['x']\n")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="others can change the commands in it"):
        read_commands(path)


# --- filling in ------------------------------------------------------------------------------------------------------


def filled(members: dict[str, Any], **kept: str) -> ServerEntry:
    """Read an entry and fill its secrets in."""

    async def read(name: SecretReference) -> str:
        if name.name not in kept:
            raise ConfigError(f"there is no secret {name}")
        return kept[name.name]

    return run_async(resolve_secrets(entry_from_mapping("one", members, environ={"UNIT": "mm"}), read))


def test_secrets_stand_in_their_places_and_among_what_is_hidden() -> None:
    found = filled(
        {
            "command": "x",
            "args": ["--a=${secret:a}", "b"],
            "env": {"A": "secret://a", "B": "Basic ${UNIT}-${secret:b}"},
        },
        a="first secret",
        b="second",
    )
    assert found.command == ("x", "--a=first secret", "b")
    assert dict(found.env) == {"A": "first secret", "B": "Basic mm-second"}
    assert {"first secret", "second", "mm-second", "--a=first secret"} <= found.secrets
    assert (found.sealed, found.shown) == ((), "x '***' b")


def test_secrets_stand_in_urls_headers_and_logins() -> None:
    found = filled(
        {
            "url": "https://h/${secret:a}/mcp",
            "headers": {"X-Key": "secret://a"},
            "oauth": {"clientSecret": "secret://a", "scopes": ["x", "${secret:a}"], "n": 1},
        },
        a="abcd",
    )
    assert (found.url, dict(found.headers)) == ("https://h/abcd/mcp", {"X-Key": "abcd"})
    assert found.auth == {"clientSecret": "abcd", "scopes": ["x", "abcd"], "n": 1}


def test_an_entry_without_secrets_is_left_as_it_is() -> None:
    entry = entry_from_mapping("one", {"command": "x"}, environ={})
    assert run_async(resolve_secrets(entry, vault().read)) is entry


def test_a_missing_secret_is_reported_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"^the given configuration: one\.env\.A: there is no secret a$"):
        filled({"command": "x", "env": {"A": "secret://a"}})


@pytest.mark.parametrize(
    ("members", "secret"),
    [
        pytest.param({"url": "https://h/", "headers": {"X": "secret://a"}}, "two\nlines", id="header-lines"),
        pytest.param({"url": "https://h/", "headers": {"X": "secret://a"}}, "ended ", id="header-space"),
        pytest.param({"url": "https://h/${secret:a}"}, "a b", id="url"),
        pytest.param({"command": "x", "env": {"A": "secret://a"}}, "a\x00b", id="env"),
    ],
)
def test_an_invalid_secret_is_reported_and_not_shown(members: dict[str, Any], secret: str) -> None:
    with pytest.raises(
        ConfigError, match="the secret a filled in, the value contains characters that are not allowed there"
    ) as failure:
        filled(members, a=secret)
    assert secret not in str(failure.value)


# --- who gets them ---------------------------------------------------------------------------------------------------


class Asked(Vault):
    """A vault that notes what it was asked for."""

    def __init__(self, **kept: str) -> None:
        super().__init__({"file": MemoryStore()}, environ={})
        self.kept_here = kept
        self.asked: list[str] = []

    async def read(self, name: SecretReference) -> str:
        """Note the name, and look it up."""
        self.asked.append(str(name))
        return self.kept_here[str(name)] if str(name) in self.kept_here else await super().read(name)


def program(**env: str) -> dict[str, Any]:
    """Make the entry of a server that knows whether it has the right secret."""
    root = str(Path(__file__).parents[3])
    words = ["-S", "-m", "tests.host.servers.leaky", "quiet"]
    return {"command": sys.executable, "args": words, "env": {"PYTHONPATH": root, **env}, "era": "handshake"}


async def test_a_project_gets_no_secret_before_it_is_approved(tmp_path: Path) -> None:
    project = tmp_path / "project" / "mcp.json"
    project.parent.mkdir()
    source = Source("project", str(project), 1)
    entry = entry_from_mapping("one", program(LEAK="secret://leak"), source=source, environ={})
    book = TrustStore(tmp_path / "state" / "trust.json")
    secrets = Asked(leak=SECRET)

    async with Host.open({"one": entry}, folder=tmp_path / "state", vault=secrets, audit=False) as host:
        assert (host.status()[0].state, secrets.asked) == ("unapproved", [])
        book.approve(in_project_folder(entry), await take_fingerprint(in_project_folder(entry)))
        await host.restart("one")
        assert (host.status()[0].state, secrets.asked) == ("ready", ["leak"])


async def test_a_server_whose_secret_is_missing_is_misconfigured_until_it_is_set(tmp_path: Path) -> None:
    kept = Vault(open_stores(tmp_path), environ={})
    servers = {"one": program(LEAK="secret://leak")}
    async with Host.open(servers, folder=tmp_path, vault=kept, audit=False) as host:
        before = host.status()[0]
        await kept.put("leak", SECRET)
        await host.reload()
        await host._open.core.supervisor.settled(10, everything=True)
        after = host.status()[0]
    assert (before.state, after.state) == ("misconfigured", "ready")
    assert "one.env.LEAK: there is no secret leak; run: trunkline secret set leak" in (before.reason or "")


async def test_a_secret_is_looked_up_again_at_each_start(tmp_path: Path) -> None:
    kept = Asked(leak="first word")

    servers = {"one": program(LEAK="secret://leak")}
    async with Host.open(servers, folder=tmp_path, vault=kept, audit=False, policy=allow("one")) as host:
        before = (await host.call_tool("one/know", {"guess": "first word"})).text
        kept.kept_here["leak"] = "second word"
        await host.restart("one")
        after = (await host.call_tool("one/know", {"guess": "second word"})).text
    assert (before, after) == ("yes", "yes")


async def test_a_secret_that_went_missing_keeps_a_session_from_connecting(tmp_path: Path) -> None:
    entry = {**program(LEAK="secret://leak"), "start": "lazy", "share": "session"}
    options: dict[str, Any] = {"folder": tmp_path, "audit": False, "policy": allow("one")}
    async with Host.open({"one": entry}, **options, vault=Asked(leak="to be forgotten")):
        pass
    async with Host.open({"one": entry}, **options, vault=Asked(), elicitation=lambda asked: None) as host:
        with pytest.raises(ServerUnavailable, match="there is no secret leak"):
            await host.call_tool("one/know", {"guess": SECRET})


def test_nothing_is_started_with_secrets_that_are_not_filled_in() -> None:
    entry = entry_from_mapping("one", {"command": "x", "env": {"A": "secret://a"}}, environ={})
    with pytest.raises(ConfigError, match="one: its secrets are not filled in yet"):
        make_client(entry, {})


# --- knowing them again ----------------------------------------------------------------------------------------------

DISGUISES = {
    "itself": "p@ss/w&rd 1",
    "path": "p%40ss/w%26rd%201",
    "query": "p%40ss%2Fw%26rd+1",
    "base64": "cEBzcy93JnJkIDE=",
}


@pytest.mark.parametrize("form", DISGUISES.values(), ids=DISGUISES)
def test_a_secret_is_known_in_its_usual_disguises(form: str) -> None:
    book = SecretRegistry(["p@ss/w&rd 1"])
    assert book.hide(f"<{form}>") == "<***>"
    assert book.holds(f"<{form}>")


def test_the_lines_of_a_key_are_known_alone() -> None:
    book = SecretRegistry(["-----BEGIN-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END-----\n"])
    assert book.hide("at MIIEvQIBADANBgkqhkiG9w0B!") == "at ***!"


def test_the_longer_of_two_secrets_is_hidden_first() -> None:
    assert SecretRegistry(["abcd", "abcdefgh"]).hide("abcdefgh") == "***"


def test_a_store_that_knows_nothing_changes_nothing() -> None:
    book, error = SecretRegistry(["no", "true"]), RequestFailed("no", data={"a": "true"})
    book.redact_error(error)
    result = t.CallToolResult(content=[])
    assert (book.hide("no true"), book.holds("no"), str(error)) == ("no true", False, "no (-32603)")
    assert book.redact_result(result) is result
    assert book.hide_in(["no"]) == ["no"]
    assert repr(book) == "SecretRegistry(0 known)"


def test_a_store_forgets_the_oldest_of_very_many() -> None:
    book = SecretRegistry(["first-secret"])
    book.add(f"secret-number-{n:05}" for n in range(4000))
    assert book.hide("first-secret secret-number-03999") == "first-secret ***"


def test_an_error_and_what_led_to_it_are_cleaned() -> None:
    book = SecretRegistry([SECRET])
    error = RequestFailed(f"no {SECRET}", data={"with": [SECRET], "n": (1, SECRET), SECRET: None})
    error.__cause__ = ExceptionGroup(f"all of {SECRET}", [OSError(2, SECRET)])
    error.__context__ = error
    error.add_note(SECRET)
    book.redact_error(error)
    assert (error.message, error.data) == ("no ***", {"with": ["***"], "n": (1, "***"), "***": None})
    assert (error.args, error.__notes__) == (("no ***",), ["***"])
    assert error.__cause__.exceptions[0].args == (2, "***")


def test_what_is_nested_too_deeply_is_hidden_whole() -> None:
    value: Any = "x"
    for _ in range(50):
        value = [value]
    assert "***" in str(SecretRegistry([SECRET]).hide_in(value))


def test_a_failed_result_is_cleaned_in_all_its_texts() -> None:
    content: list[t.ContentBlock] = [t.TextContent(text=f"a {SECRET}"), t.ImageContent(data="", mime_type="image/png")]
    result = t.CallToolResult(content=content, structured_content={"a": SECRET}, meta={"b": SECRET}, is_error=True)
    cleaned = SecretRegistry([SECRET]).redact_result(result)
    assert SECRET not in repr(cleaned)
    assert cleaned.content == [t.TextContent(text="a ***"), content[1]]


def test_a_redaction_is_made_once_for_each_use() -> None:
    book = SecretRegistry([SECRET])
    one = book.redaction(pointers=["/a"])
    assert book.redaction(pointers=["/a"]) is one
    assert one.apply({"a": 1, "b": SECRET}) == {"a": "***", "b": "***"}
    book.add(["another secret"])
    assert book.redaction(pointers=["/a"]) is not one


def test_only_so_many_redactions_are_kept() -> None:
    book = SecretRegistry([SECRET])
    first = book.redaction(pointers=["/first"])
    made = [book.redaction(pointers=[f"/{n}"]) for n in range(256)]
    assert book.redaction(pointers=["/first"]) is not first
    assert len(made) == 256


# --- the log ---------------------------------------------------------------------------------------------------------


class Heard(logging.Handler):
    """Keeps what is logged as it would be written."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.records.append(record)
        self.lines.append(self.format(record))


@pytest.fixture
def heard() -> Any:
    """Listen to a logger of the package whose secrets are hidden."""
    redaction, handler = LogRedaction(SecretRegistry([SECRET])), Heard()
    root = logging.getLogger()
    root.addHandler(handler)
    redaction.install()
    yield handler
    redaction.remove()
    root.removeHandler(handler)


@pytest.mark.parametrize("name", LOGGERS)
def test_no_logger_of_the_package_lets_a_secret_through(heard: Heard, name: str) -> None:
    logging.getLogger(name).warning("with %s and 100%%", SECRET)
    assert heard.lines == ["with *** and 100%"]


def test_what_looks_like_a_credential_is_hidden_in_the_log(heard: Heard) -> None:
    logging.getLogger("trunkline").warning("sent ghp_abcdefghijklmnopqrstuv")
    assert heard.lines == ["sent ***"]


def test_a_traceback_in_the_log_has_no_secret_in_it(heard: Heard) -> None:
    log = logging.getLogger("trunkline.host")
    try:
        raise ValueError(SECRET)
    except ValueError:
        log.exception("it failed", stack_info=True, extra={"argument": SECRET, "count": 1})
    assert "ValueError: ***" in heard.lines[0]
    assert SECRET not in repr(vars(heard.records[0])) + heard.lines[0]


def test_a_record_that_cannot_be_formatted_is_logged_anyway(heard: Heard) -> None:
    logging.getLogger("trunkline").warning("%d of %s", SECRET, "two")
    assert heard.lines == ["%d of %s (arguments do not match the format)"]


def test_every_logger_of_the_package_is_known() -> None:
    used: set[str] = set()
    for path in Path(trunkline.__file__).parent.rglob("*.py"):
        used |= set(re.findall(r"getLogger\(\"(trunkline[a-z.]*)\"", path.read_text(encoding="utf-8")))
    assert used <= set(LOGGERS)


def test_a_store_of_logins_still_speaks_of_logins(tmp_path: Path) -> None:
    (tmp_path / "logins").write_bytes(os.urandom(64))
    with pytest.raises(AuthError, match=r"^Cannot decrypt the logins in .* and log in again\.$"):
        run_async(FileStore(tmp_path / "logins").get("a"))
