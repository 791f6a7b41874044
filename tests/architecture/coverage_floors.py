"""Compare the branch coverage that was counted with the floor of every package in ``ratchet.toml``.

``python -m tests.architecture.coverage_floors`` reads ``.coverage``; with ``--write`` it puts today's values into the
file. A package that has no floor fails, and so does a floor without a package. With ``compat`` it compares the package
that only its own tests measure.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

import coverage

_ROOT = Path(__file__).resolve().parents[2]
_RATCHET = Path(__file__).with_name("ratchet.toml")
#: What is measured once may be a little less the next time: races reach different branches.
_SLACK = 0.5


def package_of(path: Path) -> str:
    """Return the package of a file: the first folder below ``trunkline``, of the host the second one too."""
    parts = path.relative_to(_ROOT).parts
    if parts[0] in ("servers", "compat"):
        return parts[0]
    below = parts[2:-1]
    return "/".join(below[: 2 if below[:1] == ("host",) else 1]) or "trunkline"


def measured() -> dict[str, float]:
    """Return the percentage of every package, statements and branches together."""
    data = coverage.Coverage(data_file=_ROOT / ".coverage", config_file=str(_ROOT / "pyproject.toml"))
    data.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        data.json_report(outfile=str(report))
        files = json.loads(report.read_text())["files"]
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, file in files.items():
        summary, count = file["summary"], counts[package_of((_ROOT / name).resolve())]
        count[0] += summary["covered_lines"] + summary["covered_branches"]
        count[1] += summary["num_statements"] + summary["num_branches"]
    return {package: 100 * covered / max(total, 1) for package, (covered, total) in sorted(counts.items())}


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if a package is below its floor."""
    table = "compat-coverage" if "compat" in arguments else "coverage"
    percentages = measured()
    text = _RATCHET.read_text(encoding="utf-8")
    if "--write" in arguments:
        rows = "".join(f'"{p}" = {math.floor((v - _SLACK) * 10) / 10}\n' for p, v in percentages.items())
        rest = re.compile(rf"(?ms)^\[{table}\]\n.*?(?=^$|^\[|\Z)")
        _RATCHET.write_text(rest.sub(f"[{table}]\n{rows}", text), encoding="utf-8")
        return 0
    floors: dict[str, float] = tomllib.loads(text)[table]
    failed = False
    for package in sorted(floors.keys() | percentages.keys()):
        percentage, floor = percentages.get(package), floors.get(package)
        below = percentage is None or floor is None or percentage < floor
        failed |= below
        now = "no file" if percentage is None else f"{percentage:.1f}"
        print(f"{package:24} {now:>8}  floor {floor or 'missing'}{'  BELOW' if below else ''}")  # noqa: T201
    print("FAILED: see the packages marked BELOW" if failed else "OK: every package holds its floor.")  # noqa: T201
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
