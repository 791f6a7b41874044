"""The page stays small: the files of the first view, and all files together, the vendored module included."""

from __future__ import annotations

import re
from pathlib import Path

from trunkline.console.web import STATIC

#: All files of the page, and a little; anything new should replace something old.
MOST_BYTES = 287_000
#: What is loaded until the list of tools is shown. The other views, forms and results are loaded when they are opened.
MOST_FIRST_BYTES = 105_000
_STATIC_IMPORT = re.compile(r'^(?:import|export)\b[^;]*?\bfrom "(\.[^"]+)"', re.M)
_LINKED = re.compile(r'(?:href|src)="/static/([^"]+)"')


def first_view() -> dict[str, int]:
    """Return the files that the first view loads, with their sizes: the page, what it names, and what that imports."""
    page = STATIC / "index.html"
    waiting = [page, STATIC / "js" / "views" / "tools.js"]
    waiting += [STATIC / name for name in _LINKED.findall(page.read_text())]
    found: dict[Path, int] = {}
    while waiting:
        file = waiting.pop().resolve()
        if file not in found:
            found[file] = file.stat().st_size
            if file.suffix == ".js":
                waiting += [file.parent / name for name in _STATIC_IMPORT.findall(file.read_text())]
    return {str(file.relative_to(STATIC.resolve())): size for file, size in found.items()}


def test_all_files_of_the_page_together_are_below_the_limit() -> None:
    sizes = {str(file.relative_to(STATIC)): file.stat().st_size for file in STATIC.rglob("*") if file.is_file()}
    assert sum(sizes.values()) < MOST_BYTES, largest(sizes)


def test_the_first_view_loads_few_files() -> None:
    sizes = first_view()
    assert {"index.html", "app.css", "js/main.js", "js/views/tools.js", "vendor/preact-htm.module.js"} <= set(sizes)
    assert not {"views.css", "js/schema_form.js", "js/views/calls.js"} & set(sizes)
    assert sum(sizes.values()) < MOST_FIRST_BYTES, largest(sizes)


def largest(sizes: dict[str, int]) -> str:
    rows = sorted(sizes.items(), key=lambda each: -each[1])[:8]
    return f"{sum(sizes.values())} bytes; the largest: {', '.join(f'{name} {size}' for name, size in rows)}"
