"""Copies of the tree, and the tests that are run on them with one mutation in."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.draw import Mutation

_FIRST = 40
_MOST = 250
_TESTS = ("tests", "servers/tests", "conftest.py", "pyproject.toml", "Makefile")


@dataclass(frozen=True)
class Copy:
    """A copy of the repository with an environment of its own that has this copy installed."""

    root: Path

    @property
    def python(self) -> str:
        """The interpreter of the copy's environment."""
        return str(self.root / ".venv/bin/python")

    def pytest(self, *arguments: str, seconds: float, environment: dict[str, str]) -> int | None:
        """Run pytest in the copy and return its exit code; None if it took longer than ``seconds``."""
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments]
        log = self.root / "pytest.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command, cwd=self.root, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return None

    def failed_test(self) -> str:
        """Return the first test that the last run named as failed."""
        for line in (self.root / "pytest.log").read_text(errors="replace").splitlines():
            if line.startswith(("FAILED ", "ERROR ")):
                return line.split(" ", 1)[1].split(" - ")[0].removesuffix(" (call)").removesuffix(" (setup)")
        return "(the tests cannot be collected)"


def make_copy(root: Path, target: Path, *, tests_at: str | None) -> Copy:
    """Copy what git knows of ``root``, and its environment, to ``target``; the tests may be of another revision."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    ).stdout
    for name in names.decode().split("\0"):
        if name and (root / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)
    if tests_at is not None:
        for name in ("tests", "servers/tests"):
            shutil.rmtree(target / name)
        archive = subprocess.run(
            ["git", "archive", tests_at, *_TESTS], cwd=root, capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "x"], cwd=target, input=archive, check=True)
        shutil.copytree(root / "tests/mutation", target / "tests/mutation", dirs_exist_ok=True)
    subprocess.run(["git", "init", "-q"], cwd=target, check=True)  # some tests ask git for the files of the project
    subprocess.run(["git", "add", "-A"], cwd=target, check=True)
    _copy_environment(root / ".venv", target / ".venv")
    return Copy(target)


def _copy_environment(source: Path, target: Path) -> None:
    """Copy an environment; its scripts and its editable installs then name the copy."""
    shutil.copytree(source, target, symlinks=True)
    before, after = str(source.parent).encode(), str(target.parent).encode()
    scripts = [path for path in (target / "bin").iterdir() if path.is_file() and not path.is_symlink()]
    for path in (*scripts, *target.rglob("site-packages/*.pth")):
        text = path.read_bytes()
        if before in text:
            path.write_bytes(text.replace(before, after))


@dataclass(frozen=True)
class Outcome:
    """What became of a mutation."""

    mutation: Mutation
    killed: bool
    by: str
    tests: int
    """How many tests were run on it at most."""


def try_mutation(
    copy: Copy, mutation: Mutation, tests: Sequence[str], *, seconds: float, environment: dict[str, str]
) -> Outcome:
    """Run ``tests`` with the mutation in ``copy``, until one fails: the first few alone, for most changes die there."""
    if not tests:
        return Outcome(mutation, False, "not reached", 0)
    module = copy.root / mutation.path
    source = module.read_bytes()
    module.write_bytes(mutation.apply(source))
    arguments = copy.root / "tests.txt"
    try:
        for batch in filter(None, (tests[:_FIRST], tests[_FIRST:])):
            arguments.write_text("".join(f"{test}\n" for test in batch if "\n" not in test))
            code = copy.pytest("-x", "--timeout=60", f"@{arguments}", seconds=seconds, environment=environment)
            if code is None:
                return Outcome(mutation, True, "(the run did not end)", len(tests))
            if code != 0:
                return Outcome(mutation, True, copy.failed_test(), len(tests))
    finally:
        module.write_bytes(source)
    return Outcome(mutation, False, "", len(tests))


def choose(tests: Iterable[str], seconds: dict[str, float], *, near: str, budget: float) -> list[str]:
    """Return the tests to run: those whose file bears the layer's name first, then the quick ones, up to ``budget``.

    At least one is returned, whatever it costs.
    """
    ordered = sorted(tests, key=lambda test: (near not in test.partition("::")[0], seconds.get(test, 1.0), test))
    chosen: list[str] = []
    total = 0.0
    for test in ordered[:_MOST]:
        total += seconds.get(test, 1.0)
        if chosen and total > budget:
            break
        chosen.append(test)
    return chosen
