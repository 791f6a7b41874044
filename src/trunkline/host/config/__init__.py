"""The host's configuration: which servers there are, who said so, and why one of them cannot run.

``loading`` reads files of all scopes and says what holds, ``in_code`` reads what is given in code, ``explaining`` says
where each value came from. A text goes through ``files``, ``positions`` and ``documents``; one entry of it through
``building``, with ``members`` and ``settings`` for what is known, and ``variables`` for what is filled in.
"""

__all__: list[str] = []
