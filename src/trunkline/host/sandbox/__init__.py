"""Sandboxes for server processes: the settings, what this machine supports, and how the launch changes.

``settings`` parses the sandbox of an entry; ``capabilities`` detects what can be used here; ``file_access`` determines
which files a server needs and may use; ``launch`` chooses a backend (bubblewrap, Landlock or a container, in
``backends``) and builds the ``LaunchPlan``. Two programs run in their own process: ``enter_sandbox`` enters a sandbox
and becomes the server; ``run_container`` runs beside a container and removes it at the end. Nothing here decides what
may be called: a sandboxed server is authorized like any other.
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
