"""What ARCHITECTURE.md claims, held to the source: paths that exist, line budgets, and who knows methods and eras."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import trunkline
import trunkline_servers
from tests.architecture.rules import Module
from trunkline.protocol.methods import METHODS

ROOT = Path(__file__).parents[2]
PACKAGE = Path(trunkline.__file__).parent
SERVERS = Path(trunkline_servers.__file__).parent
COMPAT = ROOT / "compat" / "src" / "trunkline_compat"
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

#: The rows of the table of packages: the names in its first column, and the number in its last.
BUDGETS = re.findall(r"^\| ((?:`[a-z_./]+`(?:, )?)+) \|.*\| ([\d,]+) \|$", MAP, re.MULTILINE)
#: What the table "Where is" points to. A name without a folder belongs to the folder named before it in its row.
ROWS = re.findall(r"^\| [^|]+ \| ([^|]+) \|$", MAP[MAP.index("## Where is") : MAP.index("## One call, walked")], re.M)

#: The lifecycle messages that the rules of HTTP itself name: sessions open with one, streams follow the others.
LIFECYCLE = {"initialize", "notifications/initialized", "notifications/cancelled", "notifications/progress"}
#: The modules outside the tables of revisions that ask which era a revision belongs to.
ERA_AWARE = {
    "client.client",
    "client.connect",
    "client.session",
    # Tasks have another form in each era.
    "client.tasks.client",
    "client.url_targets",
    "protocol.negotiation",
    "protocol.request_validation",
    "protocol.revisions",
    "server.client_requests",
    "server.dispatch",
    "server.tasks.exchange",
    "server.tasks.methods",
    "server.tasks.polling",
    "server.tasks.record",
    "server.tasks.run",
    "server.tasks.service",
    "server.tools",
    "transports.http.client.link",
}


def place(name: str) -> Path:
    """Where a package of the table lies."""
    return {"trunkline_servers": SERVERS, "trunkline_compat": COMPAT}.get(name, PACKAGE / name)


def lines(path: Path) -> int:
    """Count the lines of a module, or of all modules of a package."""
    files = path.rglob("*.py") if path.is_dir() else [path]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def paths_of(row: str) -> list[Path]:
    """Resolve each path of a row; a bare file name lies in the folder of the path before it."""
    found: list[Path] = []
    for name in re.findall(r"`([\w./]+(?:\.py|/))`|`((?:tests|docs)/[\w./]+)`", row):
        text = name[0] or name[1]
        roots = [
            PACKAGE,
            SERVERS.parent,
            COMPAT.parent,
            ROOT,
            *([found[-1] if found[-1].is_dir() else found[-1].parent] if found else []),
        ]
        found.append(next((root / text for root in reversed(roots) if (root / text).exists()), ROOT / text))
    return found


def test_every_package_stays_within_its_line_budget() -> None:
    sizes = {
        names: sum(lines(place(name.rstrip("/"))) for name in re.findall(r"`([^`]+)`", names)) for names, _ in BUDGETS
    }
    assert [f"{names}: {sizes[names]}" for names, most in BUDGETS if sizes[names] > int(most.replace(",", ""))] == []


def test_every_package_has_a_budget() -> None:
    budgeted = {name.split("/")[0] for names, _ in BUDGETS for name in re.findall(r"`([^`]+)`", names)}
    parts = {path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - budgeted <= {"__init__.py", "__main__.py", "_lazy.py"}


def test_every_row_of_the_map_points_to_what_exists() -> None:
    assert [str(path) for row in ROWS for path in paths_of(row) if not path.exists()] == []


def test_the_map_has_rows() -> None:
    assert (len(ROWS) > 50, len(BUDGETS) > 10) == (True, True)


def test_transports_know_only_the_lifecycle_messages_that_http_names(source: tuple[Module, ...]) -> None:
    methods = {method.name for method in METHODS}
    known = {
        node.value
        for module in source
        if module.layer == "transports"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and node.value in methods
    }
    assert known <= LIFECYCLE


def test_only_the_named_modules_below_the_host_ask_for_the_era(source: tuple[Module, ...]) -> None:
    asking = {
        module.name.removeprefix("trunkline.")
        for module in source
        if module.layer in ("protocol", "transports", "server", "client", "connection")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr == "handshake" and "settings" not in ast.unparse(node.value)
    }
    assert asking <= ERA_AWARE
