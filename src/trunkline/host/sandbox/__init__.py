"""Sandboxes for servers that are started: what is asked for, what this machine can do, and how the start changes.

``reading`` makes a ``Sandbox`` of what an entry says; ``machine`` finds out what can be made here; ``reach`` says which
files a server needs and may use; ``planning`` chooses, and makes a ``Launch`` of it all by ``landlock``, ``bubblewrap``
or ``container``. Two programs run outside of this process: ``entering`` goes into a sandbox and becomes the server;
``escorting`` stands beside a container and sees it to its end. Nothing here says what may be called: a sandboxed server
is asked for like any other.
"""

from __future__ import annotations

from trunkline.host.sandbox.machine import Capabilities, Engine, capabilities
from trunkline.host.sandbox.planning import Launch, plan, prepare
from trunkline.host.sandbox.reach import Places
from trunkline.host.sandbox.reading import read_sandbox
from trunkline.host.sandbox.wishes import Container, Quotas, Sandbox

__all__ = [
    "Capabilities",
    "Container",
    "Engine",
    "Launch",
    "Places",
    "Quotas",
    "Sandbox",
    "capabilities",
    "plan",
    "prepare",
    "read_sandbox",
]
