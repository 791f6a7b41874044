"""Runs ``async def`` tests, and tells the suites which generation they run with."""

import asyncio
import inspect
from importlib import metadata

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a coroutine function in an event loop of its own, bounded in time."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 120))
    return True


@pytest.fixture
def sdk():
    """Return the major version of the official SDK."""
    return int(metadata.version("mcp").partition(".")[0])


@pytest.fixture
def fast():
    """Return the major version of FastMCP."""
    return int(metadata.version("fastmcp").partition(".")[0])
