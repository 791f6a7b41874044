"""What reference servers make of others' words: one line, nothing unseen, the wanted type, and no secret."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trunkline.host.secrecy.redaction import DEFAULT_NAMES
from trunkline.servers.members import as_dict, as_list, text_of
from trunkline.servers.secret_looks import holds_secret, looks_secret, names_secret
from trunkline.servers.wording import cut, one_line, visible

# --- lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("as it is", "as it is", id="plain"),
        pytest.param(" two\nlines\tand  more ", "two lines and more", id="lines"),
        pytest.param("a\x1b[31mb\u202ec\x00", "a [31mb c", id="unseen"),
        pytest.param("", "", id="empty"),
        pytest.param("12345678901", "1234567890…", id="long"),
    ],
)
def test_a_text_is_put_on_one_line(text: str, line: str) -> None:
    assert one_line(text, 10 if text.isdigit() else 400) == line


def test_a_text_that_fits_is_not_cut() -> None:
    assert (cut("12345", 5), cut("123456", 5)) == ("12345", "12345…")


@pytest.mark.parametrize(
    ("text", "seen"),
    [("plain ü", "plain ü"), ("a\nb", "a\\nb"), ("a\u202eb", "a\\u202eb"), ("a\ud800", "a\\ud800"), ("⠀", "\\u2800")],
    ids=ascii,
)
def test_what_cannot_be_seen_is_written_out(text: str, seen: str) -> None:
    assert visible(text, unseen=frozenset("⠀")) == seen


# --- members ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 1, "x", [1], {"a": 1}], ids=repr)
def test_a_member_of_another_type_counts_as_absent(value: Any) -> None:
    taken = (as_dict(value) or as_list(value) or text_of(value)) or None
    assert taken == (None if value in (None, 1) else value)


def test_a_text_of_others_is_cut() -> None:
    assert (len(text_of("x" * 1000)), text_of("abc", 2)) == (500, "ab")


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(DEFAULT_NAMES))
def test_what_the_trail_hides_by_name_the_servers_hide_too(name: str) -> None:
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("DBPASS", "MYSQL_PWD", "PGPASSWORD", "dbPassword", "SSHPASS", "GITHUB_TOKEN", "HTTP_AUTHORIZATION", "GH_PAT"),
        *("AWS_ACCESS_KEY_ID", "SIGNING_KEY_BASE64", "TLS_KEYFILE", "api-key", "x-apikey", "com.example.key", "KEYS"),
        *("SENTRY_DSN", "TLS_CERT", "AZURE_CONNECTION_STRING", "connectionString", "SSH_AUTH_SOCK", "password_salt"),
    ],
)
def test_a_name_gives_a_secret_away(name: str) -> None:
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "PWD", "OLDPWD", "HOME", "GIT_AUTHOR_NAME", "AUTHORS", "KEYBOARD", "KEYMAP", "MONKEY", "SPIN"),
        *("org.opencontainers.image.authors", "PATTERN", "CERTAINTY", "COMPOSE_PROJECT", "DESIGN"),
    ],
)
def test_a_name_that_only_sounds_so_does_not(name: str) -> None:
    assert not names_secret(name)


@pytest.mark.parametrize(
    "text",
    [
        *("redis://:x@h", "postgres://u:p/w@h/d", "https://tok@github.com/x.git", "see https://u:p@h for more"),
        *(
            "ghp_abcdefghij",
            "github_pat_abcdefghij",
            "glpat-abcdef",
            "xoxb-123456-abc",
            "sk-abcdefgh",
            "AKIA12345678",
        ),
        *("eyJhbGciOi.eyJzdWIi.sig", "npm_abcdefghij", "hf_abcdefgh", "AIzaabcdefgh", "Bearer abcdefgh12"),
        *("-----BEGIN RSA PRIVATE KEY-----", "https://h/a?sv=1&sig=x", "Server=h;Password=x;Port=1", 'token: "x"'),
        *("DefaultEndpointsProtocol=https;AccountKey=x", "run --api-key=x"),
    ],
)
def test_a_text_gives_a_secret_away(text: str) -> None:
    assert holds_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        *("/usr/bin:/bin", "https://example.com/x", "me@example.com", "see https://example.com or ask me@example.com"),
        *("en_GB.UTF-8", "sk-SK", "tokens are fine", "a:b=c", "task-force-seven", ""),
    ],
)
def test_a_text_without_one_does_not(text: str) -> None:
    assert not holds_secret(text)


def test_what_is_empty_is_no_secret() -> None:
    assert (looks_secret("PASSWORD", ""), looks_secret("PASSWORD", "x"), looks_secret("A", "ghp_abcdefgh")) == (
        False,
        True,
        True,
    )


@pytest.mark.parametrize("piece", ["://", "eyJ-", "KEYA", "keyx_", "a", "sk-", "://a ", "bearer ", "token ", "1-pin"])
def test_no_name_and_no_text_takes_more_than_linear_time(piece: str) -> None:
    began = time.process_time()
    looks_secret(piece * 30_000, "x")
    looks_secret("x", piece * 30_000)
    # In proportion to the square it would be minutes.
    assert time.process_time() - began < 5
