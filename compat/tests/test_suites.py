"""Suites as users of the frameworks write them pass with the adapters, in every generation.

Each file of ``suites`` imports ``mcp`` and ``fastmcp`` only. It runs with the framework itself, too:
``python -m pytest -c pytest.ini fast_server.py`` in ``suites``, with the Python of an environment that has FastMCP and
pytest, shows that a claim is the framework's.
"""

from importlib.util import find_spec

import pytest

from compat.tests.serving import GENERATIONS, PROGRAMS, run_python

SUITES = PROGRAMS.parent / "suites"
FAST = ["fast_server.py", "fast_parts.py", "fast_code.py"]
if find_spec("trunkline_servers") is not None:
    FAST.append("fast_openapi.py")


@pytest.mark.parametrize(
    ("generation", "files"),
    [
        ("sdk1", ["sdk_types.py", "sdk1_low.py", "sdk1_high.py"]),
        ("sdk2", ["sdk_types.py", "sdk2_server.py"]),
        ("fastmcp2", FAST),
        ("fastmcp3", FAST),
        ("fastmcp4", FAST),
    ],
)
def test_a_suite_of_a_user_passes(generation: str, files: list[str]) -> None:
    versions = GENERATIONS[generation]
    run = run_python(
        *("-m", "pytest", "-q", "-p", "trunkline_compat.pytest_plugin", "-p", "no:cacheprovider"),
        *("-c", str(SUITES / "pytest.ini"), *(str(SUITES / name) for name in files)),
        TRUNKLINE_COMPAT_MCP=versions["mcp"],
        TRUNKLINE_COMPAT_FASTMCP=versions.get("fastmcp", ""),
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout
