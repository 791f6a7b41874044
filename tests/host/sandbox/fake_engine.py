"""Stands for docker and podman: runs the command of ``run`` with the variables that were named, and keeps a book.

A container is a file in the folder ``containers`` beside this program. One whose image is ``stubborn`` ignores the end
of its input and every polite signal; only the removal of its file ends it, as only the engine can end a container.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

BOOK = Path(sys.argv[0]).parent / "containers"


def run(words: list[str]) -> int:
    """Run a container to its end."""
    at = next(at for at, word in enumerate(words) if not word.startswith("--"))
    options, image, arguments = words[:at], words[at], words[at + 1 :]
    values = dict(option.removeprefix("--").split("=", 1) for option in options if "=" in option)
    container = BOOK / values["name"]
    container.write_text(json.dumps({"options": options, "image": image, "environment": dict(os.environ)}))
    if image == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while container.exists():
            time.sleep(0.01)
        return 137
    passed = [option.removeprefix("--env=").partition("=") for option in options if option.startswith("--env=")]
    env = {name: value if sign else os.environ[name] for name, sign, value in passed}
    status = subprocess.run([values["entrypoint"], *arguments], env=env, check=False).returncode
    container.rename(BOOK.parent / "ended")
    return status


def remove(words: list[str]) -> int:
    """Remove a container, whether it runs or not."""
    container = BOOK / words[-1]
    container.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit({"run": run, "rm": remove}[sys.argv[1]](sys.argv[2:]))
