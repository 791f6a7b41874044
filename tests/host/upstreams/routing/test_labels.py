"""The questions of servers name their server, before any word of the server's own."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from trunkline.host.upstreams.routing.channels import label_pages, with_server_label


@pytest.mark.parametrize("mode", ["form", "url", None])
def test_a_form_and_a_page_begin_with_the_server(mode: Any) -> None:
    asked = with_server_label(t.ElicitRequestParams(message="[bank] Name?", mode=mode, url="https://x.example"), "evil")
    assert (asked.message, asked.mode, asked.url) == ("[evil] [bank] Name?", mode, "https://x.example")


@pytest.mark.parametrize(("prompt", "rest"), [(None, ""), ("", ""), ("Short.", "\n\nShort.")])
def test_a_request_for_a_model_begins_with_the_server(prompt: str | None, rest: str) -> None:
    asked = with_server_label(t.CreateMessageRequestParams(messages=[], max_tokens=5, system_prompt=prompt), "s")
    assert asked.system_prompt == f"[s] This request is made by the MCP server s.{rest}"
    assert (asked.messages, asked.max_tokens) == ([], 5)


def test_what_no_one_reads_is_left_as_it_is() -> None:
    asked = t.RequestParams()
    assert with_server_label(asked, "s") is asked


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {"elicitations": [{"message": "Pay", "url": "https://x"}], "more": 1},
            {"elicitations": [{"message": "[s] Pay", "url": "https://x"}], "more": 1},
        ),
        ({"elicitations": [{"message": 5}, "x"]}, {"elicitations": [{"message": 5}, "x"]}),
        ({"elicitations": "x"}, {"elicitations": "x"}),
        (None, None),
        ("x", "x"),
    ],
)
def test_the_pages_of_an_error_begin_with_the_server(data: Any, expected: Any) -> None:
    assert label_pages(data, "s") == expected
