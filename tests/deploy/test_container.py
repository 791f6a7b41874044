"""The Dockerfile: what it says, and what its steps do, run one by one without Docker.

Not run here: the base image, its layers, and the change of the user, which need a Docker daemon.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.dockerfile import Instruction, instructions, words
from tests.deploy.nginx_front import free_port
from trunkline import Client, __version__

ROOT = Path(__file__).parents[2]
DOCKERFILE, CONTEXT = ROOT / "deploy" / "Dockerfile", ROOT / "deploy" / "books"
TOKEN = "a-token-of-a-test"


def of(name: str, stage: int | None = None) -> list[Instruction]:
    """Return the instructions of a name, of the image if no stage is given."""
    found = instructions(DOCKERFILE)
    wanted = found[-1].stage if stage is None else stage
    return [each for each in found if each.name == name and each.stage == wanted]


def test_the_image_does_not_run_as_root() -> None:
    (user,) = of("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user.value), "a number, which Kubernetes can check"
    after = instructions(DOCKERFILE)
    assert not [each for each in after[after.index(user) :] if each.name in ("RUN", "COPY")]


def test_the_base_image_has_a_version() -> None:
    bases = [each.value.split()[0] for each in instructions(DOCKERFILE) if each.name == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+-slim", base) for base in bases), bases


def test_no_secret_can_be_in_a_layer() -> None:
    for each in instructions(DOCKERFILE):
        if each.name in ("ENV", "ARG", "RUN"):
            assert not re.search(r"KEY|TOKEN|PASSWORD|SECRET|STORE", each.value), each
        if each.name == "COPY":
            assert "." not in words(each.value)[:-1], "a whole folder may have secrets in it"
    ignored = (CONTEXT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*", "everything is left out but what is listed"
    listed = [rule.removeprefix("!") for rule in rules[1:]]
    copied = [
        word
        for each in instructions(DOCKERFILE)
        if each.name == "COPY" and "--from" not in each.value
        for word in words(each.value)[:-1]
    ]
    assert sorted(set(copied)) == sorted(listed)
    assert not any(fnmatch.fnmatch(name, rule) for rule in listed for name in (".env", "id_rsa", "server.key"))


def test_the_wheel_that_is_installed_is_of_this_version() -> None:
    lines = (CONTEXT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        f"./trunkline-{__version__}-py3-none-any.whl[http,redis]"
    ]


def test_docker_accepts_the_file() -> None:
    """With a daemon, the check of Docker's own builder."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False, timeout=120).returncode:
        pytest.skip("no Docker daemon can be reached; the steps are run one by one instead")
    command = [docker, "build", "--check", "-f", str(DOCKERFILE), str(CONTEXT)]
    assert subprocess.run(command, check=False, timeout=120).returncode == 0


# --- the steps --------------------------------------------------------------------------------------------------------


class Image:
    """What the steps made: the paths of the image below a folder of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def here(self, text: str) -> str:
        """Return a text with the absolute paths of the image moved below the folder."""
        return re.sub(r"(?<![\w.:/])/(opt|app|build)\b", rf"{self.folder}/\1", text)

    def environment(self) -> dict[str, str]:
        """Return the environment of a process in the image."""
        made = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8", "BOOKS_TOKEN": TOKEN}
        for each in of("ENV"):
            for assignment in words(each.value):
                name, _, value = assignment.partition("=")
                made[name] = self.here(value).replace("$PATH", made["PATH"])
        return made


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Build the wheel, and follow every COPY, WORKDIR and RUN of the file."""
    made = Image(tmp_path_factory.mktemp("image"))
    context = made.folder / "context"
    shutil.copytree(CONTEXT, context, ignore=shutil.ignore_patterns("*.whl", "__pycache__"))
    _run([sys.executable, "-m", "build", "--wheel", "--outdir", str(context), str(ROOT)], ROOT, dict(os.environ))
    stage, folder, environment = -1, made.folder, dict[str, str]()
    for each in instructions(DOCKERFILE):
        if each.name == "FROM":
            stage += 1
            environment = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
            environment |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        elif each.name == "WORKDIR":
            folder = Path(made.here(each.value))
            folder.mkdir(parents=True, exist_ok=True)
        elif each.name == "ENV":
            environment = made.environment()
        elif each.name == "COPY" and "--from" not in each.value:
            for pattern in words(each.value)[:-1]:
                for source in context.glob(pattern):
                    shutil.copy(source, folder)
        elif each.name == "RUN":
            _run(words(made.here(each.value)), folder, environment)
    return made


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=170
    )
    said = done.stdout + done.stderr
    if done.returncode and re.search(r"No matching distribution|connection|resolve|Could not fetch", said, re.I):
        pytest.skip("no package index can be reached, so the packages of the image are not installed")
    assert done.returncode == 0, f"{command}: {said[-2000:]}"


@contextmanager
def container(image: Image, **more: str) -> Iterator[tuple[int, int]]:
    """Run ENTRYPOINT and CMD, at free ports of loopback; return those of HTTP and of the metrics."""
    http, metrics = free_port(), free_port()
    (entry,), (arguments,) = of("ENTRYPOINT"), of("CMD")
    command = [*words(entry.value), *words(arguments.value)]
    assert f"{command}".count("0.0.0.0:8000") == f"{command}".count("0.0.0.0:9464") == 1
    places = {"0.0.0.0:8000": f"127.0.0.1:{http}", "0.0.0.0:9464": f"127.0.0.1:{metrics}"}
    environment = {**image.environment(), **more}
    program = shutil.which(command[0], path=environment["PATH"])
    assert program is not None
    assert program.startswith(str(image.folder)), "the program of the image, not one of the test"
    process = subprocess.Popen(
        [program, *(places.get(word, word) for word in command[1:])],
        cwd=image.folder / "app",
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield http, metrics
        process.terminate()
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()


async def healthy(port: int, image: Image) -> None:
    """Run the command of HEALTHCHECK until it succeeds."""
    (check,) = of("HEALTHCHECK")
    options, _, command = check.value.partition(" CMD ")
    assert "--interval=" in options
    program, *rest = words(command)
    found = shutil.which(program, path=image.environment()["PATH"])
    assert found is not None
    async with asyncio.timeout(120):
        while True:
            arguments = [word.replace(":9464/", f":{port}/") for word in rest]
            process = await asyncio.create_subprocess_exec(found, *arguments, stderr=asyncio.subprocess.DEVNULL)
            if await process.wait() == 0:
                return


@pytest.mark.slow
async def test_the_steps_make_a_server_that_answers(image: Image) -> None:
    with container(image) as (http, metrics):
        await healthy(metrics, image)
        async with Client(f"http://127.0.0.1:{http}/mcp", headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            assert (await client.call_tool("count_books", {"shelf": "poetry"})).content[0].text == "6"  # type: ignore[union-attr]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{http}/mcp", b"{}", 10)


@pytest.mark.slow
def test_the_image_has_no_more_packages_than_it_needs(image: Image) -> None:
    found = {path.name.split("-")[0].lower() for path in (image.folder / "opt").rglob("*.dist-info")}
    assert {"trunkline", "uvicorn", "redis"} <= found
    assert not found & {"pytest", "mypy", "playwright", "prompt_toolkit", "trunkline_servers"}
