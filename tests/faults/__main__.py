"""``python -m tests.faults``: the fault test, whole, for one seed or for several in a row."""

from __future__ import annotations

import argparse
import sys

from tests.faults.run import LARGE, SMALL, run


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run what was asked for; 1 if something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds in a row")
    parser.add_argument("--small", action="store_true", help="six servers, a few seconds")
    parser.add_argument("--verbose", action="store_true", help="say why calls failed and servers are not ready")
    chosen = parser.parse_args()
    failed = []
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        broken = run(seed, SMALL if chosen.small else LARGE, _tell, verbose=chosen.verbose)
        for claim in broken:
            _tell(f"  DOES NOT HOLD: {claim}")
        _tell(f"seed {seed}: {'failed' if broken else 'all claims hold'}")
        if broken:
            failed.append(seed)
    if chosen.seeds > 1:
        _tell(f"{chosen.seeds} seeds, failed: {', '.join(map(str, failed)) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
