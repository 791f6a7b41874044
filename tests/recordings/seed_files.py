"""The files of the seeds: conversations, and fragments that are not messages."""

from __future__ import annotations

import json
from pathlib import Path

from trunkline.testing.recordings import Recording

__all__ = ["BROKEN", "CONVERSATIONS", "seed"]

SEEDS = Path(__file__).parent / "seeds"
FRAGMENTS = SEEDS / "fragments.jsonl"
CONVERSATIONS = sorted(path for path in SEEDS.glob("*.jsonl") if path != FRAGMENTS)
BROKEN = [json.loads(line) for line in FRAGMENTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def seed(name: str) -> Recording:
    """Load a conversation."""
    return Recording.load(SEEDS / f"{name}.jsonl")
