"""A journey that fails is tried once more, and fails only if it fails twice; both outcomes are printed.

A browser, a page and several processes meet here on machines of any load, so one failure may be the machine's. It is
still a warning at the end of the run, with the picture that was kept.
"""

from __future__ import annotations

import os

import pytest
from _pytest.runner import runtestprotocol

from tests.browser import support


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a journey; if it fails, keep its report as a warning and run it again, with a browser of its own."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    failures = [report for report in reports if report.failed]
    if failures:
        os.environ[support.TRY] = "second-try-"
        try:
            item._initrequest()  # type: ignore[attr-defined]  # fixtures are made anew
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        finally:
            del os.environ[support.TRY]
        outcome = "failed again" if any(report.failed for report in reports) else "passed"
        for report in reports:
            if report.when == "call":
                report.sections.extend((f"the first try, {name}", text) for name, text in failures[0].sections)
                report.user_properties.append(("first try", f"{item.nodeid}: {outcome}\n{failures[0].longreprtext}"))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the first failure of each journey that was tried twice, with the names of its pictures."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, text in report.user_properties:
                if name == "first try":
                    terminalreporter.section(f"WARNING: a journey failed, and the second try {outcome}", yellow=True)
                    terminalreporter.write_line(str(text))
                    pictures = [line for _, out in report.sections for line in out.splitlines() if "kept " in line]
                    terminalreporter.write_line("\n".join(pictures))
