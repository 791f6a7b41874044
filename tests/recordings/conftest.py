"""The specification's examples are optional: without them, their tests are not collected."""

from __future__ import annotations

from pathlib import Path

SPECIFICATION = Path(__file__).parents[3] / "shared" / "spec"

collect_ignore = [] if SPECIFICATION.is_dir() else ["test_spec_examples.py"]
