"""Sandboxes for server processes: the settings, what this machine supports, and how the launch changes.

``settings`` parses the sandbox of an entry; ``backends`` (bubblewrap, Landlock, containers) detects what can be used
here; ``file_access`` determines which files a server needs and may use; ``launch`` chooses a backend and builds the
``LaunchPlan``; ``hints`` explains failures by what was kept from the server. Two programs run in their own process:
``enter_sandbox`` enters a sandbox and becomes the server; ``run_container`` runs beside a container and removes it at
the end. Nothing here decides what may be called: a sandboxed server is authorized like any other.
"""

from __future__ import annotations

from trunkline.host.sandbox.backends import Capabilities, ContainerEngine, detect_capabilities
from trunkline.host.sandbox.file_access import SandboxLocations
from trunkline.host.sandbox.launch import LaunchPlan, plan_launch, prepare_launch
from trunkline.host.sandbox.settings import ContainerSettings, ResourceLimits, SandboxSettings, parse_sandbox

__all__ = [
    "Capabilities",
    "ContainerEngine",
    "ContainerSettings",
    "LaunchPlan",
    "ResourceLimits",
    "SandboxLocations",
    "SandboxSettings",
    "detect_capabilities",
    "parse_sandbox",
    "plan_launch",
    "prepare_launch",
]
