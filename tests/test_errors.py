"""The errors: one tree, drawn as it is, and a class for each code."""

from __future__ import annotations

import re

import pytest

import trunkline.errors as errors
from trunkline.errors import (
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    RequestFailed,
    RequestTimeout,
    RevisionMismatch,
    ServerExited,
    ToolError,
    TrunklineError,
    request_failed,
)

CLASSES = [getattr(errors, name) for name in errors.__all__ if name[0].isupper()]


def drawn() -> dict[str, str | None]:
    """Read the tree in the module's docstring: each class and the one it hangs on."""
    rows = re.findall(r"^    ([│ ├└─]*)([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
    parents: dict[str, str | None] = {}
    trail: list[str] = []
    for indent, name in rows:
        trail[len(indent) // 4 :] = [name]
        parents[name] = trail[-2] if len(trail) > 1 else None
    return parents


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    real = {kind.__name__: kind.__base__.__name__ for kind in CLASSES if kind is not TrunklineError}
    assert drawn() == {"TrunklineError": None, **real}


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if issubclass(kind, RequestFailed)])
def test_an_error_code_from_the_wire_becomes_its_class(kind: type[RequestFailed]) -> None:
    error = request_failed(kind.default_code, "no", {"a": 1})
    assert issubclass(type(error), kind)
    assert (error.code, error.message, error.data, str(error)) == (
        kind.default_code,
        "no",
        {"a": 1},
        f"no ({kind.default_code})",
    )


def test_an_unknown_code_is_kept_in_the_general_class() -> None:
    error = request_failed(-1, "no")
    assert (type(error), error.code, error.data) == (RequestFailed, -1, None)


def test_a_handler_may_raise_a_class_with_its_own_code_or_another() -> None:
    assert (MethodNotFound("no").code, InvalidParams("no", code=-5).code) == (-32601, -5)


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (RevisionMismatch("no", ours=("a",), theirs=("b",)), {"ours": ("a",), "theirs": ("b",)}),
        (MissingCapability("no", capability="elicitation.url"), {"capability": "elicitation.url"}),
        (ServerExited("no", status=-9, stderr="bye"), {"status": -9, "stderr": "bye", "sandbox": ""}),
        (RequestTimeout("no", clock="idle", seconds=60.0), {"clock": "idle", "seconds": 60.0}),
        (ToolError("no", result={"isError": True}), {"result": {"isError": True}}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_has_its_details_as_attributes(error: TrunklineError, facts: dict[str, object]) -> None:
    assert (str(error), vars(error)) == ("no", facts)


def test_an_error_for_a_missing_token_says_how_to_pass_one() -> None:
    error = RequestFailed("Authorization required", code=-32600)
    assert str(error) == "Authorization required (-32600)"
    error.status = 401
    assert "auth=" in str(error)
    assert error.message == "Authorization required"
