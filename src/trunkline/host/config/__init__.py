"""The host's configuration: which servers there are, where each entry comes from, and why one of them cannot run.

``loading`` loads the files of all scopes, or a mapping given in code, and decides which entries are active; ``explain``
reports where each value came from. A file passes through ``jsonc`` and ``documents``; each entry through
``entry_parser``, with ``transport`` and ``settings`` for its members and ``variables`` for expansion.
"""

__all__: list[str] = []
