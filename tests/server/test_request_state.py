"""Request state that travels with the client, and what happens to it on the way."""

from __future__ import annotations

import base64
import logging
import os
import string
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import Raw, structs
from msgspec.json import decode, encode

from trunkline.errors import ConfigError, InvalidParams, StoreUnavailable, TooManyRequests
from trunkline.protocol.limits import Limits
from trunkline.protocol.seal import Seal as TextSeal
from trunkline.protocol.seal import read_keys
from trunkline.server.journal import Journal
from trunkline.server.request_state import RoundState, StateBinding, StateKeeper, StateSeal, request_digest
from trunkline.server.store_budget import weight_of
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.store.server_store import ServerStore

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
BINDING = StateBinding("tools/call", "d1", "ada")
REFUSAL = "The request state is not valid here; start the call again."
ALPHABET = string.ascii_letters + string.digits + "-_"


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


T = TypeVar("T")


def done(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits: states of one process are kept in memory."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")


class Seal:
    """A seal whose coroutines are run at once."""

    def __init__(self, inner: StateSeal) -> None:
        self.inner = inner

    def seal(self, state: RoundState, *, binding: StateBinding) -> str:
        return done(self.inner.seal(state, binding=binding, owner="local"))

    def open(self, text: str, *, binding: StateBinding) -> RoundState:
        return done(self.inner.open(text, binding=binding))

    def spend(self, nonce: str, owner: str = "local") -> bool:
        return done(self.inner.keeper.spend(nonce, owner=owner))

    def nonce(self) -> str:
        return done(self.inner.keeper.new_nonce())


def memory_store(clock: Clock | None = None, contents: MemoryContents | None = None) -> MemoryEngine:
    """Return an engine onto contents by a clock of their own, or those of another one."""
    return MemoryEngine(contents or MemoryContents(now=clock or Clock(), random=os.urandom))


def make_seal(*keys: bytes, server: str = "weather", limits: Limits | None = None, clock: Clock | None = None) -> Seal:
    clock = clock or Clock()
    state = ServerStore(memory_store(clock), name=server, keys=keys or (KEY,))
    return Seal(StateSeal(state, limits=limits or Limits(), now=clock, random=os.urandom))


def some_state(**changes: Any) -> RoundState:
    journal = Journal(
        asked={"size": "q2"},
        answers={"name": ("q1", Raw(b'{"action":"accept","content":{"name":"Ada"}}'))},
        once={"charge": Raw(b'{"id":7}')},
    )
    return structs.replace(RoundState(2, journal, "n1"), **changes)


def large_state(text: str, nonce: str = "n1") -> RoundState:
    return RoundState(2, Journal(once={"page": Raw(encode(text))}), nonce)


def plain(state: RoundState) -> tuple[Any, ...]:
    journal = state.journal
    answers = {key: (question, decode(answer)) for key, (question, answer) in journal.answers.items()}
    return state.round, journal.asked, answers, journal.once, state.nonce


# --- Sealing and opening


def test_a_state_comes_back_as_it_was_sealed() -> None:
    seal = make_seal()

    opened = seal.open(seal.seal(some_state(), binding=BINDING), binding=BINDING)

    assert plain(opened) == plain(some_state())


def test_a_state_without_a_nonce_gets_one_of_its_own_each_time() -> None:
    seal = make_seal()
    state = some_state(nonce="")

    first, second = (seal.open(seal.seal(state, binding=BINDING), binding=BINDING).nonce for _ in range(2))

    assert first
    assert second
    assert first != second
    assert state.nonce == ""


def test_a_sealed_text_is_url_safe_shows_nothing_and_is_never_the_same() -> None:
    seal, state = make_seal(), large_state("hunter2")
    texts = [seal.seal(state, binding=BINDING) for _ in range(2)]

    assert set(texts[0]) <= set(ALPHABET)
    assert "hunter2" not in texts[0]
    assert texts[0] != texts[1]


# --- Refusing


def refused(seal: Seal, text: str, binding: StateBinding = BINDING) -> InvalidParams:
    with pytest.raises(InvalidParams) as caught:
        seal.open(text, binding=binding)
    assert caught.value.message == REFUSAL
    return caught.value


def sealed_always_alike() -> str:
    seal = make_seal()
    seal.inner.texts = TextSeal((KEY,), purpose=b"\x01", server="weather", random=bytes)
    return seal.seal(some_state(), binding=BINDING)


SEALED = sealed_always_alike()
TAMPERED = SEALED[:40] + ("A" if SEALED[40] != "A" else "B") + SEALED[41:]


@settings(deadline=None)
@given(place=st.integers(0, len(SEALED) - 1), character=st.sampled_from(ALPHABET + "=+/ \n\x00é"))
def test_any_changed_character_is_rejected(place: int, character: str) -> None:
    assume(character != SEALED[place])

    refused(make_seal(), SEALED[:place] + character + SEALED[place + 1 :])


@settings(deadline=None)
@given(text=st.text())
def test_any_other_text_is_rejected(text: str) -> None:
    refused(make_seal(), text)


@pytest.mark.parametrize("other", [make_seal(OTHER_KEY), make_seal(server="news")], ids=["key", "server"])
def test_a_state_of_another_key_or_server_is_rejected(other: Seal) -> None:
    refused(other, SEALED)


def test_an_old_key_still_opens_and_the_new_one_seals() -> None:
    rotated = make_seal(OTHER_KEY, KEY)

    assert rotated.open(SEALED, binding=BINDING).round == 2
    assert make_seal(OTHER_KEY).open(rotated.seal(some_state(), binding=BINDING), binding=BINDING).round == 2


def test_a_state_expires_after_the_limit() -> None:
    clock = Clock()
    seal = make_seal(clock=clock, limits=Limits(state_seconds=60))
    text = seal.seal(some_state(), binding=BINDING)

    clock.time += 59.9
    assert seal.open(text, binding=BINDING).round == 2

    clock.time += 0.1
    refused(seal, text)


def test_a_state_sealed_in_another_form_is_rejected() -> None:
    nonce = os.urandom(12)
    sealed = b"\x01" + nonce + AESGCM(KEY).encrypt(nonce, b'{"round":1}', b"\x01weather")

    refused(make_seal(), base64.urlsafe_b64encode(sealed).rstrip(b"=").decode())


@pytest.mark.parametrize(
    ("text", "binding", "reason"),
    [
        pytest.param("A" * 100_000, BINDING, "too long", id="oversized"),
        pytest.param("A", BINDING, "not base64", id="not base64"),
        pytest.param(SEALED + "=", BINDING, "encoding differs", id="padded"),
        pytest.param(SEALED + "\n", BINDING, "rejected", id="with a newline"),
        pytest.param("", BINDING, "rejected", id="nothing"),
        pytest.param("Ag", BINDING, "format is unknown", id="version"),
        pytest.param("AQAA", BINDING, "rejected", id="too short"),
        pytest.param(SEALED[:-4], BINDING, "encoding differs", id="shorter"),
        pytest.param(TAMPERED, BINDING, "changed, or sealed with another key", id="tampered"),
        pytest.param(SEALED, structs.replace(BINDING, principal="bob"), "another principal", id="principal"),
        pytest.param(SEALED, structs.replace(BINDING, principal=None), "another principal", id="no principal"),
        pytest.param(SEALED, structs.replace(BINDING, method="prompts/get"), "another method", id="method"),
        pytest.param(SEALED, structs.replace(BINDING, params_digest="d2"), "another params_digest", id="params"),
    ],
)
def test_a_state_that_is_not_valid_is_rejected_and_the_log_says_why_without_a_value(
    text: str, binding: StateBinding, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="trunkline"):
        refused(make_seal(), text, binding)

    assert reason in caplog.text
    assert caplog.records[0].levelno == logging.INFO
    assert "bob" not in caplog.text


# --- The store


SMALL = Limits(state_bytes=300, state_seconds=60)
LARGE_STATE = large_state("x" * 5000)


def test_a_large_state_is_stored_and_only_its_name_is_sent() -> None:
    seal = make_seal(limits=SMALL)

    text = seal.seal(LARGE_STATE, binding=BINDING)

    assert len(text) < 200
    assert plain(seal.open(text, binding=BINDING)) == plain(LARGE_STATE)


def test_a_name_is_sent_however_small_the_limit() -> None:
    seal = make_seal(limits=Limits(state_bytes=1))

    assert seal.open(seal.seal(some_state(), binding=BINDING), binding=BINDING).round == 2


def test_a_sent_state_is_never_longer_than_the_limit() -> None:
    seal = make_seal(limits=Limits(state_bytes=260))
    texts = [seal.seal(large_state("y" * length, "n"), binding=BINDING) for length in range(80, 100)]

    assert max(map(len, texts)) <= 260
    assert {seal.open(text, binding=BINDING).nonce for text in texts} == {"n"}


def test_a_name_is_rejected_by_another_process_with_another_binding_and_when_it_is_too_old() -> None:
    clock = Clock()
    seal = make_seal(limits=SMALL, clock=clock)
    text = seal.seal(LARGE_STATE, binding=BINDING)

    refused(make_seal(limits=SMALL), text)
    refused(seal, text, structs.replace(BINDING, principal="bob"))
    clock.time += 60
    refused(seal, text)


@pytest.mark.parametrize("limit", ["message_bytes", "owner_store_bytes", "store_bytes"])
def test_a_state_larger_than_the_store_is_an_error(limit: str) -> None:
    seal = make_seal(limits=Limits(state_bytes=300, **{limit: 1000}))

    with pytest.raises(InvalidParams, match="too large to keep"):
        seal.seal(LARGE_STATE, binding=BINDING)


def make_keeper(clock: Clock | None = None, **limits: Any) -> StateKeeper:
    clock = clock or Clock()
    state = ServerStore(memory_store(clock), name="weather", keys=[KEY])
    return StateKeeper(state, limits=Limits(**limits), now=clock, random=os.urandom)


def put(keeper: StateKeeper, contents: bytes, owner: str = "local") -> str:
    name = done(keeper.put(contents, owner=owner))
    assert name is not None
    return name


@pytest.mark.parametrize(("size", "kept"), [(1, [False, True, True, True]), (1000, [False, False, True, True])])
@pytest.mark.parametrize("limit", ["owner_store_bytes", "store_bytes"])
def test_the_oldest_states_are_dropped_if_there_are_too_many_or_they_are_too_large(
    size: int, kept: list[bool], limit: str
) -> None:
    clock = Clock()
    keeper = make_keeper(clock, **{limit: 3 * weight_of(1)})
    names = []
    for number in range(4):
        names.append(put(keeper, bytes([number]) * size))
        clock.time += 1

    assert [done(keeper.get(name)) == bytes([n]) * size for n, name in enumerate(names)] == kept


def test_many_small_states_make_room_for_a_large_one() -> None:
    keeper = make_keeper(owner_store_bytes=20 * weight_of(5))
    names = [put(keeper, b"x" * 5) for _ in range(20)]
    large = put(keeper, b"y" * 19_000)

    assert done(keeper.get(large)) == b"y" * 19_000
    assert [done(keeper.get(name)) for name in names] == [None] * 20


def test_no_more_than_some_dozens_are_dropped_for_one() -> None:
    keeper = make_keeper(owner_store_bytes=200 * weight_of(5))
    names = [put(keeper, b"x" * 5) for _ in range(200)]
    with pytest.raises(TooManyRequests, match="owner_store_bytes"):
        put(keeper, b"y" * 150_000)

    assert [done(keeper.get(name)) for name in names].count(None) == 63


def test_the_states_of_another_owner_are_never_dropped() -> None:
    keeper = make_keeper(store_bytes=2 * weight_of(5))
    names = [put(keeper, b"x" * 5, "ada"), put(keeper, b"x" * 5, "bea")]
    with pytest.raises(TooManyRequests, match="on this server: the limit store_bytes") as caught:
        put(keeper, b"y", "cid")
    names.append(put(keeper, b"y", "ada"))

    assert (caught.value.code, caught.value.retry_after) == (503, 30)
    assert [done(keeper.get(name)) for name in names] == [None, b"x" * 5, b"y"]


def test_expired_states_are_not_returned_and_make_room() -> None:
    clock = Clock()
    keeper = make_keeper(clock, state_seconds=60, owner_store_bytes=2 * weight_of(5))
    early = put(keeper, b"early")
    clock.time += 30
    later = put(keeper, b"later")
    clock.time += 30

    assert done(keeper.get(early)) is None
    put(keeper, b"new")
    assert done(keeper.get(later)) == b"later"


# --- Single use


def test_a_nonce_is_spent_once_for_as_long_as_its_state_can_live() -> None:
    clock = Clock()
    seal = make_seal(clock=clock, limits=Limits(state_seconds=60))
    first, second = seal.nonce(), seal.nonce()

    assert (seal.spend(first), seal.spend(second)) == (True, True)
    clock.time += 59.9
    assert not seal.spend(first)
    clock.time += 0.1
    assert seal.spend(first)


def test_a_full_set_of_nonces_drops_none_and_accepts_none_of_its_owner() -> None:
    clock = Clock()
    seal = make_seal(clock=clock, limits=Limits(state_seconds=60, owner_store_bytes=3 * weight_of(0)))
    nonces = [seal.nonce() for _ in range(4)]

    assert [seal.spend(nonce) for nonce in nonces[:3]] == [True] * 3
    with pytest.raises(TooManyRequests, match="owner_store_bytes") as caught:
        seal.spend(nonces[3])
    assert caught.value.code == 429
    assert not seal.spend(nonces[0])
    assert seal.spend(nonces[3], "another")
    clock.time += 60
    assert seal.spend(nonces[3])


def test_a_nonce_of_an_earlier_generation_is_never_accepted() -> None:
    """A store that lost writes no longer knows which nonces were used."""
    contents = MemoryContents(now=Clock(), random=os.urandom)
    state = ServerStore(memory_store(contents=contents), name="weather", keys=[KEY])
    seal = Seal(StateSeal(state, limits=Limits(), now=Clock(), random=os.urandom))
    nonce = seal.nonce()
    contents.lose_writes()

    assert not seal.spend(nonce)


def test_without_its_store_a_state_is_sealed_and_cannot_be_spent() -> None:
    """Most states may be used more than once: they need no store. Whether one was used before is unknown."""
    contents = MemoryContents(now=Clock(), random=os.urandom)
    contents.set_available(False)
    state = ServerStore(memory_store(contents=contents), name="weather", keys=[KEY])
    seal = Seal(StateSeal(state, limits=Limits(), now=Clock(), random=os.urandom))
    opened = seal.open(seal.seal(some_state(nonce=""), binding=BINDING), binding=BINDING)

    assert opened.round == 2
    with pytest.raises(StoreUnavailable):
        seal.spend(opened.nonce)
    with pytest.raises(StoreUnavailable):
        seal.seal(large_state("x" * 100_000), binding=BINDING)
    contents.set_available(True)
    assert not seal.spend(opened.nonce)


# --- Digests


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            b'{"name":"a","arguments":{"x":1,"y":{"p":1,"q":2}}}',
            b'{ "arguments": {"y":{"q":2,"p":1}, "x":1}, "name":"a"}',
        ),
        (
            b'{"name":"a","_meta":{"progressToken":1}}',
            b'{"name":"a","_meta":{},"inputResponses":{"k":{}},"requestState":"x"}',
        ),
    ],
    ids=["order of members", "members that differ between rounds"],
)
def test_what_makes_no_other_call_does_not_change_a_digest(first: bytes, second: bytes) -> None:
    assert request_digest("tools/call", first) == request_digest("tools/call", Raw(second))


@pytest.mark.parametrize(
    ("method", "params"),
    [
        pytest.param("prompts/get", b'{"name":"a"}', id="method"),
        pytest.param("tools/call", b'{"name":"b"}', id="name"),
        pytest.param("tools/call", b'{"name":"a","arguments":{"_meta":1}}', id="arguments"),
        pytest.param("tools/call", b'{"name":["a"]}', id="type"),
        pytest.param("tools/call", None, id="no params"),
        pytest.param("tools/call", b"[]", id="no object"),
    ],
)
def test_any_other_difference_changes_a_digest(method: str, params: bytes | None) -> None:
    assert request_digest(method, params) != request_digest("tools/call", b'{"name":"a"}')


# --- Keys


URL_SAFE = b"\xfb\xff" * 16


def no_random(count: int) -> bytes:
    raise AssertionError("a key was given")


@pytest.mark.parametrize(
    ("given", "key"),
    [
        pytest.param(KEY, KEY, id="raw"),
        pytest.param(KEY.hex(), KEY, id="hex"),
        pytest.param(KEY.hex().upper().encode(), KEY, id="hex bytes"),
        pytest.param("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", KEY, id="base64"),
        pytest.param("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", KEY, id="base64 without padding"),
        pytest.param(f" {KEY.hex()}\n", KEY, id="spaces around"),
        pytest.param(base64.urlsafe_b64encode(URL_SAFE).decode(), URL_SAFE, id="url-safe base64"),
    ],
)
def test_a_key_is_read_in_every_form(given: str | bytes, key: bytes) -> None:
    assert read_keys([given], None, no_random) == [key]


def test_keys_keep_their_order_and_those_of_the_environment_come_second() -> None:
    assert read_keys([OTHER_KEY, KEY.hex()], OTHER_KEY.hex(), no_random) == [OTHER_KEY, KEY]
    assert read_keys(None, f"{OTHER_KEY.hex()}, {KEY.hex()}", no_random) == [OTHER_KEY, KEY]


@pytest.mark.parametrize("env", [None, "", " "], ids=["unset", "empty", "blank"])
def test_without_any_key_a_new_one_is_made(env: str | None) -> None:
    assert read_keys(None, env, lambda count: b"r" * count) == [b"r" * 32]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param("correct horse battery staple", id="passphrase"),
        pytest.param("x" * 32, id="passphrase of 32 characters"),
        pytest.param(b"short", id="short bytes"),
        pytest.param(b"\xff" * 31, id="raw of 31 bytes"),
        pytest.param("zz" * 32, id="no hex"),
        pytest.param(KEY.hex()[:-2], id="hex of 31 bytes"),
        pytest.param("", id="empty"),
        pytest.param("ключ", id="not ascii"),
    ],
)
def test_an_invalid_key_is_rejected_without_being_shown(given: str | bytes) -> None:
    with pytest.raises(ConfigError, match=r"state_keys\[1\] is not a key.*secrets\.token_hex\(32\)") as caught:
        read_keys([KEY, given], None, no_random)

    assert not given or str(given) not in str(caught.value)


def test_a_bad_key_in_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="TRUNKLINE_STATE_KEY is not a key"):
        read_keys(None, "hunter2", no_random)


def test_an_empty_list_of_keys_is_rejected() -> None:
    with pytest.raises(ConfigError, match="state_keys is empty"):
        read_keys([], KEY.hex(), no_random)
