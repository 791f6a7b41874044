"""The one table of secret patterns: names, texts and sentences."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.protocol.secret_patterns import (
    asks_for_secret,
    find_secrets,
    hide_secrets,
    holds_secret,
    looks_secret,
    names_secret,
)

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----"

#: Names that denote a secret everywhere.
SECRET_NAMES = (
    *("password", "PASSWORD_HASH", "user_password", "dbPassword", "PGPASSWORD", "mypassword", "passwd", "PASSPHRASE"),
    *("DBPASS", "DB_PASS", "SSHPASS", "MYSQL_PWD", "pwd", "Pwd", "passcode", "pass-phrase", "pass"),
    *("secret", "client-secret", "clientSecret", "CLIENTSECRET", "APP_SECRET_2", "secrets", "secret_id"),
    *("token", "access_token", "accessToken", "authtoken", "GITHUB_TOKEN", "refreshTokens", "token_file"),
    *("GITHUB_PAT", "GH_PAT", "AZURE_DEVOPS_EXT_PAT", "JWT", "jwtSecret", "ID_JWT", "bearer", "BEARER_VALUE"),
    *("api_key", "apiKey", "apikey", "X-Api-Key", "x-apikey", "OPENAI_KEY", "stripeKey", "accountKey"),
    *(
        "private_key",
        "PRIVATE_KEY_BASE64",
        "ssh-key",
        "AWS_ACCESS_KEY_ID",
        "aws_secret_access_key",
        "SIGNING_KEY_BASE64",
    ),
    *("authorization", "HTTP_AUTHORIZATION", "Proxy-Authorization", "auth", "BASIC_AUTH", "SSH_AUTH_SOCK", "oauth"),
    *("cookie", "Set-Cookie", "COOKIES", "session_id", "sessionId", "Mcp-Session-Id"),
    *("credentials", "GOOGLE_APPLICATION_CREDENTIALS", "db_creds", "CREDENTIAL", "signature", "X-Amz-Signature"),
    *("SENTRY_DSN", "dsn", "CONNECTION_STRING", "connectionString", "AZURE_STORAGE_CONNECTION_STRING"),
    *("otp", "totpCode", "cvv", "card_number", "ssn", "seed_phrase", "recovery_codes", "mnemonic", "password_salt"),
    *("spring.datasource.password", "com.example.apiKey"),
)
#: Names that denote one only as the name of a setting: a variable, a header, a flag, a query parameter.
SECRET_SETTINGS = (
    *(
        "KEY",
        "KEYS",
        "com.example.key",
        "TLS_KEYFILE",
        "TLS_CERT",
        "pin",
        "SALT",
        "sig",
        "SESSION",
        "INSTAGRAM_SESSION",
    ),
    *("TOKENS", "KEY_ID", "my_private_thing", "OPENAIKEY", "TRUNKLINE_STATE_KEY"),
)
PLAIN_NAMES = (
    *("PATH", "PATTERN", "PWD", "OLDPWD", "HOME", "PYTHONPATH", "COMPOSE_PROJECT", "DESIGN", "SPIN", "CERTAINTY"),
    *("TOKENIZERS_PARALLELISM", "MAX_TOKENS", "max_tokens", "maxTokens", "total_tokens", "tokenizer", "token_count"),
    *("TOKEN_URL", "tokenLimit", "pageToken", "next_page_token", "progressToken", "design_tokens"),
    *("KEYBOARD", "KEYMAP", "MONKEY", "keyword", "keyspace", "turkey", "HOTKEY"),
    *("primary_key", "primaryKey", "sort_key", "partition-key", "foreign_keys", "cache_key", "issue_key", "projectKey"),
    *("public_key", "SSH_PUBLIC_KEY", "idempotency_key", "fileKey", "ExclusiveStartKey"),
    *(
        "PASSTHROUGH",
        "pass_through",
        "bypass",
        "COMPASS_PORT",
        "passive",
        "passenger",
        "first_pass",
        "PASSWORD_MIN_LENGTH",
    ),
    *("AUTHOR", "authors", "GIT_AUTHOR_NAME", "authority", "org.opencontainers.image.authors", "AUTH_TYPE"),
    *("AUTH0_DOMAIN", "OAUTH_CLIENT_ID", "secretary", "secret_name", "cookie_policy", "SESSION_TIMEOUT"),
    *("DESKTOP_SESSION", "XDG_SESSION_TYPE", "SSL_CERT_FILE", "functionSignature", "signal", "assign"),
)
#: Texts with what hides them; ``s3cret`` must not remain.
SECRET_TEXTS = (
    ("ghp_s3cretabcdefghij0123", "***"),
    ("github_pat_s3cret_0123456789", "***"),
    ("glpat-s3cret0123456789", "***"),
    ("xoxb-123456-s3cret", "***"),
    ("sk-s3cretabcdefgh", "***"),
    ("sk-ant-api03-s3cret-abcdefghijkl", "***"),
    ("sk_live_s3cret01234", "***"),
    ("AIzas3cretABCDEFGHIJ", "***"),
    ("npm_s3cretabcdefghij", "***"),
    ("hf_s3cretabcdefgh", "***"),
    ("SG.s3cretabcdefghijkl.abcdefghijklmnopqrs", "***"),
    ("dop_v1_0123456789abcdef0123", "***"),
    ("AKIAIOSFODNN7EXAMPLE", "***"),
    (f"a token {JWT}.", "a token ***"),
    (f"before {PEM} after", "before *** after"),
    ("curl -H 'Authorization: Bearer s3cret.abc'", "curl -H 'Authorization: ***'"),
    ("Authorization: Basic dXNlcjpzM2NyZXQ=", "Authorization: ***"),
    ("postgres://ada:s3cret@db/x", "postgres://***@db/x"),
    ("redis://:s3cret@h", "redis://***@h"),
    ("postgres://u:s3/cret@h/d", "postgres://***@h/d"),
    ("https://s3cret@github.com/x.git", "https://***@github.com/x.git"),
    ("https://h/x?a=1&access_token=s3cret&b=2", "https://h/x?a=1&access_token=***&b=2"),
    ("https://h/x?key=s3cret", "https://h/x?key=***"),
    ("https://h/a?sv=1&sig=s3cret", "https://h/a?sv=1&sig=***"),
    ("https://hooks.slack.com/services/T000/B000/s3cretABCDEF", "https://hooks.slack.com/***"),
    ("Server=h;Uid=sa;Pwd=s3cret;Port=1", "Server=h;Uid=sa;Pwd=***;Port=1"),
    ("Server=h;User ID=sa;Password = s3cret;", "Server=h;User ID=sa;Password = ***;"),
    ("AccountName=a;AccountKey=s3cret==;Suffix=b", "AccountName=a;AccountKey=***;Suffix=b"),
    ("Endpoint=sb://h/;SharedAccessKey=s3cret=", "Endpoint=sb://h/;SharedAccessKey=***"),
    ("host=h user=u password='s3 cret' port=1", "host=h user=u password='***' port=1"),
    ("GITHUB_PAT=s3cret run", "GITHUB_PAT=*** run"),
    ("OPENAI_KEY=s3cret DB_PASS=s3cret", "OPENAI_KEY=*** DB_PASS=***"),
    ("mysql --password s3cret --host h", "mysql --password *** --host h"),
    ("run --api-key=s3cret x", "run --api-key=*** x"),
    ("tool --db-connection-string 's3 cret' x", "tool --db-connection-string '***' x"),
    ('{"clientSecret": "s3cret", "a": 1}', '{"clientSecret": "***", "a": 1}'),
    ("url=https://u:s3cret@h/", "url=https://***@h/"),
    ("Cookie: sid=s3cret; theme=dark", "Cookie: ***"),
    ("X-Api-Key: s3cret", "X-Api-Key: ***"),
)
PLAIN_TEXTS = (
    *("/usr/bin:/bin", "https://example.com/x", "me@example.com", "see https://example.com or ask me@example.com"),
    *("en_GB.UTF-8", "sk-SK", "tokens are fine", "a:b=c", "task-force-seven", "", "a risk-averse plan", "é 世界"),
    *("https://example.com:8080/a@b", "the token is there", "basic facts", "basic functionality", "ssh://git@host/x"),
    *("secret://github", "npm_config_registry", "hf_transfer", "primary_key=True", "sort_key=name", "max_tokens=100"),
    *("key: value", "if token == None: pass", "auth: see below", "SELECT a AS b FROM c WHERE d = 'e'", "PATH=/bin"),
    *(
        "https://h/?page=2&sort_key=name",
        "keyboard=de",
        "pypi-simple",
        "a --token-count 3",
        "TOKENIZERS_PARALLELISM=false",
    ),
)


@pytest.mark.parametrize("setting", [False, True], ids=["argument", "setting"])
@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_name_announces_a_secret(name: str, setting: bool) -> None:
    assert names_secret(name, setting=setting)


@pytest.mark.parametrize("name", SECRET_SETTINGS)
def test_some_names_announce_a_secret_only_as_those_of_settings(name: str) -> None:
    assert names_secret(name, setting=True)


@pytest.mark.parametrize("name", ["key", "keys", "pin", "tokens", "cert", "session", "salt"])
def test_a_word_that_means_much_as_an_argument_announces_none(name: str) -> None:
    assert not names_secret(name)


@pytest.mark.parametrize("setting", [False, True], ids=["argument", "setting"])
@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_a_name_that_only_sounds_alike_announces_none(name: str, setting: bool) -> None:
    assert not names_secret(name, setting=setting)


def test_a_name_without_end_is_not_read() -> None:
    assert names_secret("x" * 257)


@pytest.mark.parametrize(("text", "hidden"), SECRET_TEXTS)
def test_text_that_looks_like_a_secret_is_masked_and_the_rest_stays(text: str, hidden: str) -> None:
    assert (hide_secrets(text), holds_secret(text)) == (hidden, True)


@pytest.mark.parametrize("text", PLAIN_TEXTS)
def test_a_plain_text_stays(text: str) -> None:
    assert (hide_secrets(text), holds_secret(text)) == (text, False)


def test_an_empty_value_is_no_secret() -> None:
    assert (looks_secret("PASSWORD", ""), looks_secret("PASSWORD", "x"), looks_secret("A", "ghp_abcdefgh")) == (
        False,
        True,
        True,
    )


@pytest.mark.parametrize(
    "words", ["your password", "api key", "apikey", "one time code", "pin", "github pat", "connection string", "密码"]
)
def test_a_label_asks_for_a_secret(words: str) -> None:
    assert asks_for_secret(words)


@pytest.mark.parametrize("words", ["password policy", "max tokens", "pin board", "token name", "name", "keyboard"])
def test_a_label_that_asks_for_something_else_does_not(words: str) -> None:
    assert not asks_for_secret(words)


@given(st.text(), st.sampled_from([text for text, _ in SECRET_TEXTS]), st.text())
def test_spans_are_in_order_and_apart(before: str, secret: str, after: str) -> None:
    text = f"{before} {secret} {after}"
    spans = find_secrets(text)
    assert all(span.sign <= span.start < span.end <= len(text) for span in spans)
    assert all(one.end <= two.start for one, two in pairwise(spans))


@pytest.mark.parametrize(
    "piece",
    [
        *("://", "eyJ-", "KEYA", "keyx_", "a", "sk-", "://a ", "bearer ", "token ", "1-pin", "-----BEGIN ", "://a:"),
        *("token=", "token:'", 'password="a ', "--token ", "basic a", "a-", "a.", "x_", "_", "cookie: a=", "@://:"),
    ],
)
def test_no_name_and_no_text_takes_more_than_linear_time(piece: str) -> None:
    began = time.process_time()
    looks_secret(piece * 30_000, "x")
    looks_secret("x", piece * 30_000)
    hide_secrets(piece * 30_000)
    # In quadratic time it would take minutes.
    assert time.process_time() - began < 5
