"""The command line: one module per command in ``commands``, registered by ``main``. It may import every other layer.

Programs with a host of their own can ask the user in the terminal with the prompters exported here. Import them from
here: the modules inside are not part of the public API, whatever their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._lazy import lazy_exports

if TYPE_CHECKING:
    from trunkline.cli.ui.approvals import terminal_prompter
    from trunkline.cli.ui.elicitation import terminal_elicitation
    from trunkline.cli.ui.reviews import terminal_sampling_review

__all__ = [
    "terminal_elicitation",
    "terminal_prompter",
    "terminal_sampling_review",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "trunkline.cli.ui.approvals": ("terminal_prompter",),
            "trunkline.cli.ui.elicitation": ("terminal_elicitation",),
            "trunkline.cli.ui.reviews": ("terminal_sampling_review",),
        },
    )
