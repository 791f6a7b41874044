"""Storage of the provider's tokens: encrypted with a key that the store does not reveal, and that can be replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auth.authorization_server.support import Browser, Clock, Contents, FileEngine, OpenFile, OwnEngine, written
from tests.auth.authorization_server.test_oauth_proxy import TOKEN, a_provider, make_proxy, principal_of
from tests.support import run_async
from trunkline.auth.authorization_server.upstream_tokens import UpstreamTokens
from trunkline.errors import ConfigError

KEY = "a key that is long enough to be one"


@pytest.mark.parametrize("storage_key", [None, KEY])
async def test_the_store_alone_does_not_reveal_tokens_of_a_client_without_a_secret(
    tmp_path: Path, storage_key: str | None, open_file: OpenFile
) -> None:
    store = tmp_path / "proxy.db"
    options = {} if storage_key is None else {"storage_key": storage_key}
    proxy = make_proxy(a_provider(), store=open_file(store), client_secret=None, **options)
    principal = await principal_of(Browser(proxy))
    await proxy.aclose()
    assert b"upstream-secret-token" not in written(tmp_path)
    again = make_proxy(a_provider(), store=open_file(store), client_secret=None, **options)
    assert await again.upstream_token(principal) == "upstream-secret-token"
    await again.aclose()
    # A copy of the store, without what lies beside it, is of no use.
    copy = tmp_path / "elsewhere" / "proxy.db"
    copy.parent.mkdir()
    copy_store(store, copy)
    thief = make_proxy(a_provider(), store=open_file(copy), client_secret=None)
    assert await thief.upstream_token(principal) is None
    await thief.aclose()


def copy_store(store: Path, copy: Path) -> None:
    if store.exists():
        copy.write_bytes(store.read_bytes())
    else:
        FileEngine.opened[str(copy)] = FileEngine.opened[str(store)]


def test_the_key_of_a_client_without_a_secret_is_in_a_private_file(tmp_path: Path, open_file: OpenFile) -> None:
    async def main() -> None:
        store = tmp_path / "proxy.db"
        first, second = (make_proxy(a_provider(), store=open_file(store), client_secret=None) for _ in range(2))
        principal = await principal_of(Browser(first))
        assert await second.upstream_token(principal) == "upstream-secret-token"
        await first.aclose()
        await second.aclose()

    run_async(main())
    key = tmp_path / "proxy.db.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir() if "key" in path.name] == ["proxy.db.key"]
    assert written(tmp_path).count(key.read_bytes().strip()) == 1


async def test_a_storage_key_is_replaced_without_signing_in_again(tmp_path: Path, open_file: OpenFile) -> None:
    store = tmp_path / "proxy.db"
    found: list[str | None] = []
    proxy = make_proxy(a_provider(), store=open_file(store))
    principal = await principal_of(Browser(proxy))
    await proxy.aclose()
    # From the client's secret to a key, to another key; the old ones are forgotten in between.
    for keys in ([KEY, "our-secret"], [KEY], [KEY[::-1], KEY], [KEY[::-1]], [KEY]):
        again = make_proxy(a_provider(), store=open_file(store), client_secret="another", storage_key=keys)
        found.append(await again.upstream_token(principal))
        await again.aclose()
    assert found == ["upstream-secret-token"] * 4 + [None]


async def test_the_first_request_of_a_start_encrypts_the_tokens_of_all_users_again(
    tmp_path: Path, open_file: OpenFile
) -> None:
    store = tmp_path / "proxy.db"
    proxy = make_proxy(a_provider(), store=open_file(store), storage_key=KEY)
    browsers = [Browser(proxy) for _ in range(3)]
    principals = [await principal_of(browser) for browser in browsers]
    await proxy.aclose()
    both = make_proxy(a_provider(), store=open_file(store), storage_key=[KEY[::-1], KEY])
    assert await both.upstream_token(principals[0]) == "upstream-secret-token"
    await both.aclose()
    new = make_proxy(a_provider(), store=open_file(store), storage_key=KEY[::-1])
    assert [await new.upstream_token(each) for each in principals] == ["upstream-secret-token"] * 3
    await new.aclose()


async def test_a_changed_storage_key_is_reported_with_the_first_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, open_file: OpenFile
) -> None:
    store = tmp_path / "proxy.db"
    proxy = make_proxy(a_provider(), store=open_file(store), client_secret=None)
    principal = await principal_of(Browser(proxy))
    await proxy.aclose()
    assert not caplog.records
    changed = make_proxy(a_provider(), store=open_file(store), client_secret=None, storage_key=KEY)
    assert await changed.upstream_token(principal) is None
    await changed.aclose()
    assert "1 users must sign in again" in caplog.text


async def test_tokens_refreshed_while_a_grant_is_revoked_are_not_stored() -> None:
    clock = Clock()
    contents = Contents(clock)
    provider = a_provider()
    proxy = make_proxy(provider, store=OwnEngine(contents), clock=clock)
    principal = await principal_of(Browser(proxy))
    clock.now += 3590
    grant_id = str((principal.claims or {})["grant_id"])
    refreshed = proxy._upstream.refreshed

    async def revoked_meanwhile(tokens: UpstreamTokens) -> UpstreamTokens:
        await proxy._grants.end(grant_id)
        return await refreshed(tokens)

    proxy._upstream.refreshed = revoked_meanwhile  # type: ignore[method-assign]
    await proxy.upstream_token(principal)
    assert provider.asked[-1] == f"POST {TOKEN}"
    assert [key for key, value in contents.written.items() if grant_id in key and value] == []
    await proxy.aclose()


@pytest.mark.parametrize("key", ["", "short", [], ["short", KEY]])
def test_a_short_storage_key_is_a_config_error(key: str | list[str]) -> None:
    with pytest.raises(ConfigError, match=r"storage_key= needs at least 32 characters.*token_urlsafe"):
        make_proxy(a_provider(), storage_key=key)


def test_a_key_file_that_others_can_read_is_refused_with_the_fix(tmp_path: Path, open_file: OpenFile) -> None:
    key = tmp_path / "proxy.db.key"
    key.write_text(KEY)
    key.chmod(0o640)
    with pytest.raises(ConfigError, match=f"chmod 600 {key}"):
        make_proxy(a_provider(), store=open_file(tmp_path / "proxy.db"), client_secret=None)
    key.chmod(0o600)
    key.write_text("half")
    with pytest.raises(ConfigError, match="contains no key"):
        make_proxy(a_provider(), store=open_file(tmp_path / "proxy.db"), client_secret=None)


def test_the_error_for_a_key_file_that_cannot_be_created_names_the_option(tmp_path: Path, open_file: OpenFile) -> None:
    (tmp_path / "proxy.db.key").mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="storage_key="):
        make_proxy(a_provider(), store=open_file(tmp_path / "proxy.db"), client_secret=None)
