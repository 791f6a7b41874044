"""The page about the API has every path that the console serves, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from tests.console.support import library, on_console

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "console-api.md").read_text(encoding="utf-8")


async def test_the_page_has_every_path(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage:
        served = {f"{route.method} {route.path}" for route in stage.console.routes()}
    # The application serves these itself: they hand out the token.
    served |= {"POST /login", "POST /login-file"}
    documented = set(re.findall(r"`((?:GET|POST|PUT|DELETE) /[^`]*)`", PAGE))
    assert documented == served
