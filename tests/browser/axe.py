"""axe-core: finds what people with a screen reader or poor sight cannot use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.support import ROOT, Window

__all__ = ["AXE", "needs_axe", "serious_findings"]

#: Installed by ``make browser``; evaluated in the page by tests alone.
AXE = ROOT / ".interop" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here: make browser installs it where npm is")

_RUN = Path(__file__).with_name("axe_run.js")


async def serious_findings(window: Window) -> list[dict[str, Any]]:
    """Return what axe-core finds that is serious or critical."""
    await window.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = await window.page.evaluate(_RUN.read_text(encoding="utf-8"))
    # A page that cannot be looked at has no findings either.
    assert found["checked"] > 10
    return [rule for rule in found["rules"] if rule["impact"] in ("serious", "critical")]
