"""The pure parts of the watcher program; what it does as a process is tested with the process link."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from trunkline.transports.watcher import descendants, pack_launch, unpack_launch

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NAMES = st.text(st.characters(exclude_characters="\0=", exclude_categories=["Cs"]), min_size=1)


@given(WORDS, st.lists(WORDS), st.dictionaries(NAMES, WORDS))
def test_the_launch_record_survives_encoding(path: str, argv: list[str], env: dict[str, str]) -> None:
    assert unpack_launch(pack_launch(path, argv, env)) == (
        os.fsencode(path),
        [os.fsencode(word) for word in argv],
        {os.fsencode(name): os.fsencode(value) for name, value in env.items()},
    )


def test_children_of_children_are_descendants() -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '20']); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        found = descendants(os.getpid())
        os.killpg(child.pid, 9)
    assert (child.pid, child.pid) in found
    assert (grandchild, child.pid) in found
