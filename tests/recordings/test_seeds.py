"""Every complete message of the seeds, through the codec: what goes in comes out, unknown members included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recordings.seed_files import BROKEN, CONVERSATIONS, seed
from trunkline.protocol.jsonrpc import ErrorResponse, InvalidMessage, Notification, Request, Response, decode, encode
from trunkline.testing.recordings import Recording, RecordingEntry

ENTRIES = [
    pytest.param(entry, id=f"{path.stem}-{number}")
    for path in CONVERSATIONS
    for number, entry in enumerate(Recording.load(path).entries, 1)
]


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_seed_message_comes_out_of_the_codec_as_the_same_json(entry: RecordingEntry) -> None:
    message = entry.decoded
    assert isinstance(message, Request | Notification | Response | ErrorResponse)
    assert json.loads(encode(message)) == entry.json


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_seed_message_is_read_as_what_its_members_say(entry: RecordingEntry) -> None:
    members = {
        "Request": {"id", "method"},
        "Notification": {"method"},
        "Response": {"id", "result"},
        "ErrorResponse": {"id", "error"},
    }
    assert members[type(entry.decoded).__name__] == entry.json.keys() - {"jsonrpc", "params"}


@pytest.mark.parametrize(("text", "code"), [pytest.param(row["text"], row["code"], id=row["text"]) for row in BROKEN])
def test_a_fragment_of_the_seeds_is_refused(text: str, code: int) -> None:
    message = decode(text.encode())
    assert isinstance(message, InvalidMessage)
    assert message.code == code


@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_a_recording_is_written_as_it_was_read(path: Path) -> None:
    assert Recording.load(path).dump() == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("000-initialize-and-sampling", 3),
        ("003-weather", 9),
        ("004-message-forms", 7),
        ("004-method-not-found", 1),
        ("004-negotiation", 3),
        ("004-code-review-filesystem", 5),
        ("004-code-review-github", 6),
    ],
)
def test_no_message_of_a_conversation_is_missing(name: str, messages: int) -> None:
    assert len(seed(name).entries) == messages
