"""The fault test, small: six servers, two clients, a few seconds. ``make faults`` runs it whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.casting import MARK, choose, large_cast
from tests.faults.claims import Claims
from tests.faults.measures import marked
from tests.faults.run import SMALL, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


# So long that a machine busy with other tests makes no difference; by itself it takes seconds.
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_goes_wrong_at_some_servers_costs_the_others_nothing() -> None:
    told: list[str] = []
    broken = run(1, SMALL, told.append)
    assert broken == [], "\n".join(told)


def test_a_seed_always_chooses_the_same() -> None:
    def chosen(seed: int) -> list[tuple[str, str, str]]:
        chance = random.Random(seed)
        parts = choose(large_cast(chance), chance, ledger=Path("ledger"), mark="mark")
        return [(part.name, part.era, part.entry.settings.era) for part in parts]

    assert chosen(3) == chosen(3)
    assert chosen(3) != chosen(4)


def test_a_process_with_the_mark_is_found_whoever_its_parent_is() -> None:
    mark = str(random.random())
    leaving = f"import os, subprocess; subprocess.Popen(['sleep', '60'], env={{**os.environ, '{MARK}': '{mark}'}})"
    subprocess.run([sys.executable, "-c", leaving], check=True, timeout=120)
    found = marked(mark)
    os.kill(found[0], signal.SIGKILL)
    assert len(found) == 1


def test_a_claim_that_does_not_hold_is_noted_once() -> None:
    claims = Claims()
    claims.hold(False, "it is so")
    claims.hold(False, "it is so")
    claims.hold(True, "this too")
    assert claims.broken == ["it is so"]
