"""``python -m tests.fleet``: install the fleet, measure, and print one table; 1 if a bar is missed."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.fleet.clients import CLIENTS
from tests.fleet.report import PAGE, bars, page, table
from tests.fleet.run import PARTS, Plan, run
from tests.fleet.servers import SERVERS
from tests.fleet.together import LONGEST_DELAY


def _tell(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    names = [*(server.name for server in SERVERS), *(client.name for client in CLIENTS)]
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a server or a client; may be repeated"
    )
    parser.add_argument("--part", action="append", default=[], choices=PARTS, help="a part; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="decides the delays of starts")
    parser.add_argument("--restarts", type=int, default=10, help="restarts of all servers together")
    parser.add_argument("--at-once", type=int, default=60, help="servers that are started at once")
    parser.add_argument("--skip-install", action="store_true", help="use what is installed, skip the rest")
    parser.add_argument("--write-docs", action="store_true", help=f"write the table to {PAGE.name}")
    chosen = parser.parse_args()
    for name in chosen.only:
        if name not in names:
            parser.error(f"no server or client is called {name!r}; there are: {', '.join(names)}")
    if chosen.write_docs and (chosen.only or chosen.part):
        parser.error("--write-docs needs a whole run, without --only and --part")
    return chosen


def main() -> int:
    """Run what was asked for; return 1 if a bar is missed."""
    chosen = _arguments()
    # Servers that write to stdout what is no message are told about once by each client; that is not what is measured.
    logging.disable(logging.CRITICAL)
    plan = Plan(
        seed=chosen.seed,
        parts=tuple(chosen.part) or PARTS,
        only=tuple(chosen.only),
        restarts=chosen.restarts,
        at_once=chosen.at_once,
        installs=not chosen.skip_install,
    )
    result = run(plan, _tell)
    for line in table(result):
        sys.stdout.write(f"{line}\n")
    if chosen.write_docs:
        day = time.strftime("%Y-%m-%d")
        PAGE.write_text(page(result, day=day, delay=LONGEST_DELAY, count=plan.at_once), encoding="utf-8")
    missed = [bar for bar in bars(result) if not bar.passed]
    sys.stdout.write(f"\n{f'{len(missed)} bars are missed' if missed else 'all bars hold'}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
