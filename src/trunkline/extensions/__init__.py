"""Extensions of the protocol: the API to define one, and the extensions included in Trunkline.

Each folder is an extension. Server and client import it on first use, and know only its interface. Tasks, which one
revision has in its core, are part of server and client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._lazy import lazy_exports

if TYPE_CHECKING:
    from trunkline.client.tasks.client import TaskHandle, TaskState
    from trunkline.extensions.apps.content_security import content_security_policy, frame_permissions
    from trunkline.extensions.apps.declarations import AppCsp, AppDeclaration
    from trunkline.extensions.apps.reading import AppPage
    from trunkline.extensions.skills.loading import LoadedSkill
    from trunkline.protocol.extension_definition import Extension, ExtensionMethod, ExtensionNotification, ResultKind
    from trunkline.protocol.extensions import APPS, SKILLS, TASKS
    from trunkline.server.task_options import TaskOptions, TaskSettings
    from trunkline.server.tasks.records import TaskLimits

__all__ = [
    "APPS",
    "SKILLS",
    "TASKS",
    "AppCsp",
    "AppDeclaration",
    "AppPage",
    "Extension",
    "ExtensionMethod",
    "ExtensionNotification",
    "LoadedSkill",
    "ResultKind",
    "TaskHandle",
    "TaskLimits",
    "TaskOptions",
    "TaskSettings",
    "TaskState",
    "content_security_policy",
    "frame_permissions",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "trunkline.extensions.apps.content_security": ("content_security_policy", "frame_permissions"),
            "trunkline.extensions.apps.declarations": ("AppCsp", "AppDeclaration"),
            "trunkline.extensions.apps.reading": ("AppPage",),
            "trunkline.extensions.skills.loading": ("LoadedSkill",),
            "trunkline.client.tasks.client": ("TaskHandle", "TaskState"),
            "trunkline.server.tasks.records": ("TaskLimits",),
            "trunkline.protocol.extension_definition": (
                "Extension",
                "ExtensionMethod",
                "ExtensionNotification",
                "ResultKind",
            ),
            "trunkline.protocol.extensions": ("APPS", "SKILLS", "TASKS"),
            "trunkline.server.task_options": ("TaskOptions", "TaskSettings"),
        },
    )
