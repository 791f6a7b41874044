"""The command line: one file a command (``cmd_<verb>.py``), wired by ``main``; it may know every other layer."""

__all__: list[str] = []
