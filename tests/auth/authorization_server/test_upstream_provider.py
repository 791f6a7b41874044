"""Storage of the provider's tokens: encrypted with a key that the store does not reveal, and that can be replaced."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.auth.authorization_server.support import Browser, contents
from tests.auth.authorization_server.test_oauth_proxy import a_provider, make_proxy, principal_of
from tests.support import run_async
from trunkline.errors import ConfigError

KEY = "a key that is long enough to be one"


def legacy_key(store: Path) -> bytes:
    """Derive the key that a store alone reveals, as earlier versions did for a client without a secret."""
    with closing(sqlite3.connect(store)) as db:
        (data,) = db.execute("SELECT data FROM records WHERE kind = 'secret' AND name = 'upstream'").fetchone()
    return hashlib.scrypt(b"", salt=json.loads(data)["value"].encode(), n=2**10, r=8, p=1, dklen=32)


def sealed_in(store: Path) -> dict[str, bytes]:
    with closing(sqlite3.connect(store)) as db:
        rows = db.execute("SELECT name, data FROM records WHERE kind = 'upstream'").fetchall()
    return {name: base64.b64decode(json.loads(data)["data"]) for name, data in rows}


@pytest.mark.parametrize("storage_key", [None, KEY])
async def test_the_store_alone_does_not_reveal_tokens_of_a_client_without_a_secret(
    tmp_path: Path, storage_key: str | None
) -> None:
    store = tmp_path / "proxy.db"
    options = {} if storage_key is None else {"storage_key": storage_key}
    proxy = make_proxy(a_provider(), store=str(store), client_secret=None, **options)
    principal = await principal_of(Browser(proxy))
    await proxy.aclose()
    ((grant, sealed),) = sealed_in(store).items()
    with pytest.raises(InvalidTag):
        AESGCM(legacy_key(store)).decrypt(sealed[:12], sealed[12:], grant.encode())
    again = make_proxy(a_provider(), store=str(store), client_secret=None, **options)
    assert await again.upstream_token(principal) == "upstream-secret-token"
    await again.aclose()
    # A copy of the store, without what lies beside it, is of no use.
    copy = tmp_path / "elsewhere" / "proxy.db"
    copy.parent.mkdir()
    copy.write_bytes(store.read_bytes())
    thief = make_proxy(a_provider(), store=str(copy), client_secret=None)
    assert await thief.upstream_token(principal) is None
    await thief.aclose()


def test_the_key_of_a_client_without_a_secret_is_in_a_private_file(tmp_path: Path) -> None:
    async def main() -> None:
        store = str(tmp_path / "proxy.db")
        first, second = (make_proxy(a_provider(), store=store, client_secret=None) for _ in range(2))
        principal = await principal_of(Browser(first))
        assert await second.upstream_token(principal) == "upstream-secret-token"
        await first.aclose()
        await second.aclose()

    run_async(main())
    key = tmp_path / "proxy.db.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir() if "key" in path.name] == ["proxy.db.key"]
    assert key.read_bytes().strip() not in (tmp_path / "proxy.db").read_bytes()


async def test_tokens_encrypted_with_the_store_key_alone_are_reencrypted(tmp_path: Path) -> None:
    store = tmp_path / "proxy.db"
    proxy = make_proxy(a_provider(), store=str(store), client_secret=None)
    principal = await principal_of(Browser(proxy))
    await proxy.aclose()
    # As an earlier version left it: sealed by the store's own key, and no key file.
    (grant,) = sealed_in(store)
    tokens = json.dumps({"access_token": "from-before", "until": 2.0**53}).encode()
    old = b"n" * 12 + AESGCM(legacy_key(store)).encrypt(b"n" * 12, tokens, grant.encode())
    with closing(sqlite3.connect(store)) as db, db:
        record = json.dumps({"data": base64.b64encode(old).decode()})
        db.execute("UPDATE records SET data = ? WHERE kind = 'upstream'", (record.encode(),))
    (tmp_path / "proxy.db.key").unlink()
    again = make_proxy(a_provider(), store=str(store), client_secret=None)
    assert await again.upstream_token(principal) == "from-before"
    sealed = sealed_in(store)[grant]
    with pytest.raises(InvalidTag):
        AESGCM(legacy_key(store)).decrypt(sealed[:12], sealed[12:], grant.encode())
    await again.aclose()
    assert base64.b64encode(old) not in contents(tmp_path)


async def test_a_storage_key_is_replaced_without_signing_in_again(tmp_path: Path) -> None:
    store = str(tmp_path / "proxy.db")
    found: list[str | None] = []
    proxy = make_proxy(a_provider(), store=store)
    principal = await principal_of(Browser(proxy))
    await proxy.aclose()
    # From the client's secret to a key, to another key; the old ones are forgotten in between.
    for keys in ([KEY, "our-secret"], [KEY], [KEY[::-1], KEY], [KEY[::-1]], [KEY]):
        again = make_proxy(a_provider(), store=store, client_secret="another", storage_key=keys)
        found.append(await again.upstream_token(principal))
        await again.aclose()
    assert found == ["upstream-secret-token"] * 4 + [None]


async def test_a_changed_storage_key_is_reported_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = str(tmp_path / "proxy.db")
    proxy = make_proxy(a_provider(), store=store, client_secret=None)
    await principal_of(Browser(proxy))
    await proxy.aclose()
    assert not caplog.records
    await make_proxy(a_provider(), store=store, client_secret=None, storage_key=KEY).aclose()
    assert "1 users must sign in again" in caplog.text


@pytest.mark.parametrize("key", ["", "short", [], ["short", KEY]])
def test_a_short_storage_key_is_a_config_error(key: str | list[str]) -> None:
    with pytest.raises(ConfigError, match=r"storage_key= needs at least 32 characters.*token_urlsafe"):
        make_proxy(a_provider(), storage_key=key)


def test_a_key_file_that_others_can_read_is_refused_with_the_fix(tmp_path: Path) -> None:
    key = tmp_path / "proxy.db.key"
    key.write_text(KEY)
    key.chmod(0o640)
    with pytest.raises(ConfigError, match=f"chmod 600 {key}"):
        make_proxy(a_provider(), store=str(tmp_path / "proxy.db"), client_secret=None)
    key.chmod(0o600)
    key.write_text("half")
    with pytest.raises(ConfigError, match="contains no key"):
        make_proxy(a_provider(), store=str(tmp_path / "proxy.db"), client_secret=None)


def test_the_error_for_a_key_file_that_cannot_be_created_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "proxy.db.key").mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="storage_key="):
        make_proxy(a_provider(), store=str(tmp_path / "proxy.db"), client_secret=None)
