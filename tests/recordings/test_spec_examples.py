"""The specification's own examples, where they lie beside the project: each is decoded as the type its folder names.

Optional: without the folder there is nothing to run, and the seeds hold the codec to the same rule.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import trunkline.types
from trunkline.protocol.jsonrpc import ErrorResponse, Notification, Request, Response, decode, encode
from trunkline.protocol.methods import METHODS

EXAMPLES = Path(__file__).parents[3] / "shared" / "spec" / "2026-07-28" / "examples"

#: Folders whose type has another name here: unions of the schema that are one struct, errors, and form schemas, which
#: travel as plain JSON.
RENAMED: dict[str, Any] = {
    "BlobResourceContents": trunkline.types.ResourceContents,
    "TextResourceContents": trunkline.types.ResourceContents,
    "ElicitRequestFormParams": trunkline.types.ElicitRequestParams,
    "ElicitRequestURLParams": trunkline.types.ElicitRequestParams,
    "CreateMessageRequest": trunkline.types.InputRequest,
    "ElicitRequest": trunkline.types.InputRequest,
    "ListRootsRequest": trunkline.types.InputRequest,
}
#: Members that an example has although its type in the schema does not.
STRAY = {"ListRootsRequest": {"id"}}

FILES = sorted(EXAMPLES.glob("*/*.json"))
MESSAGES = [path for path in FILES if "jsonrpc" in json.loads(path.read_bytes())]
VALUES = [path for path in FILES if path not in MESSAGES]
PARAMS = {method.name: method.params for method in METHODS}


def type_of(folder: str) -> Any:
    """Return the type that a folder of values names."""
    if folder.endswith("Schema"):
        return dict[str, Any]
    if folder.endswith("Error"):
        return trunkline.types.ErrorObject
    return RENAMED.get(folder) or getattr(trunkline.types, folder)


def inner(path: Path) -> tuple[Any, Any]:
    """Return the part of a message that has its own type, and that type."""
    message = json.loads(path.read_bytes())
    if "method" in message:
        return message.get("params", {}), PARAMS[message["method"]]
    if "error" in message:
        return message["error"], trunkline.types.ErrorObject
    return message["result"], getattr(trunkline.types, path.parent.name.removesuffix("Response"))


def name(path: Path) -> str:
    """Name a case by its folder and file."""
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.parametrize("path", VALUES, ids=name)
def test_an_example_value_is_read_as_its_type_and_written_as_it_was(path: Path) -> None:
    value = msgspec.json.decode(path.read_bytes(), type=type_of(path.parent.name))
    expected = json.loads(path.read_bytes())
    stray = STRAY.get(path.parent.name, set())
    assert json.loads(msgspec.json.encode(value)) == {key: expected[key] for key in expected if key not in stray}


@pytest.mark.parametrize("path", MESSAGES, ids=name)
def test_an_example_message_comes_out_of_the_codec_as_it_was(path: Path) -> None:
    message = decode(path.read_bytes())
    assert isinstance(message, Request | Notification | Response | ErrorResponse)
    assert json.loads(encode(message)) == json.loads(path.read_bytes())


@pytest.mark.parametrize("path", MESSAGES, ids=name)
def test_what_an_example_message_carries_is_read_as_its_type_and_written_as_it_was(path: Path) -> None:
    expected, kind = inner(path)
    value = msgspec.json.decode(json.dumps(expected), type=kind)
    assert json.loads(msgspec.json.encode(value)) == expected
