"""What ``store=`` accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.errors import ConfigError
from trunkline.store.memory import MemoryEngine
from trunkline.store.open import open_store
from trunkline.store.redis import RedisEngine
from trunkline.store.sqlite import SqliteEngine


def file_of(option: str | Path) -> str:
    """Return the absolute path that an option means."""
    store = open_store(option, name="test")
    assert isinstance(store, SqliteEngine)
    return store.path


@pytest.mark.parametrize("option", ["", "http://127.0.0.1", "redis://", "redis://h:port", "sqlite://", "sqlite://x"])
def test_a_url_of_something_else_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="store="):
        open_store(option, name="test")


def test_a_path_is_an_sqlite_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    absolute = str(tmp_path / "a.db")
    assert [file_of(option) for option in ("a.db", tmp_path / "a.db", "sqlite:///a.db", f"sqlite:///{absolute}")] == [
        absolute
    ] * 4
    assert [file_of(option) for option in ("~/a.db", "sqlite:///~/a.db")] == [str(home / "a.db")] * 2
    # Nothing is made before it is used.
    assert list(tmp_path.rglob("*")) == [home]


def test_an_engine_is_used_as_it_is_and_nothing_is_memory(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "a.db")
    assert open_store(engine, name="test") is engine
    assert isinstance(open_store(None, name="test"), MemoryEngine)


@pytest.mark.parametrize("password", ["hush/tell", "hush#tell", "hush?tell", "hush[tell"])
def test_a_password_with_special_characters_is_not_shown(password: str) -> None:
    with pytest.raises(ConfigError, match="percent-encoded") as raised:
        open_store(f"redis://:{password}@127.0.0.1:6379/0", name="test")
    assert not any(part in str(raised.value) for part in ("hush", "tell"))
    assert raised.value.__suppress_context__


def test_a_url_is_opened_without_connecting() -> None:
    urls = ["redis://127.0.0.1:1", "valkey://127.0.0.1:1", "rediss://127.0.0.1:1/2", "unix:///tmp/x"]
    assert [url for url in urls if not isinstance(open_store(url, name="test"), RedisEngine)] == []
