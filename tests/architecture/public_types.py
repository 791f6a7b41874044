"""Check with pyright that the public API is completely typed: ``make typecheck-public``.

``pyright --verifytypes`` counts every module whose name has no underscore as public. Here only the names count that the
public packages export, and what can be reached from them: each must have a known type that does not depend on how a
type checker infers it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from tests.architecture.test_public_face import PUBLIC

__all__ = ["main"]

ROOT = Path(__file__).parents[2]
#: What both type checkers must infer.
INFERRED = ("tests/client/typing_of_client.py", "tests/server/typing_of_context.py")


def _pyright(command: str, *arguments: str) -> dict[str, Any]:
    paths = [str(ROOT / "src"), sysconfig.get_path("purelib")]
    ended = subprocess.run(
        [command, "--outputjson", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def incomplete(report: dict[str, Any]) -> tuple[int, list[str]]:
    """Count the exported names, and list those whose type is unknown or only inferred."""
    exported = {f"{package}.{name}" for package in PUBLIC for name in importlib.import_module(package).__all__}
    symbols = [symbol for symbol in report["typeCompleteness"]["symbols"] if symbol["name"] in exported]
    missing = exported - {symbol["name"] for symbol in symbols}
    bad = {symbol["name"] for symbol in symbols if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]}
    return len(exported), sorted(missing | bad)


def main() -> int:
    """Run pyright, print the result, and return the exit status."""
    command = sys.argv[1]
    report = _pyright(command, "--verifytypes", "trunkline", "--ignoreexternal")
    count, bad = incomplete(report)
    whole = report["typeCompleteness"]["completenessScore"]
    sys.stdout.write(f"exported names: {count}, completely typed: {count - len(bad)}; of all modules: {whole:.1%}\n")
    for name in bad:
        sys.stdout.write(f"  incomplete: {name}\n")
    faults = [
        f"{item['file']}:{item['range']['start']['line'] + 1}: {item['message']}"
        for item in _pyright(command, *INFERRED)["generalDiagnostics"]
        if item["severity"] == "error"
    ]
    for fault in faults:
        sys.stdout.write(f"  {fault}\n")
    return 1 if bad or faults else 0


if __name__ == "__main__":
    sys.exit(main())
