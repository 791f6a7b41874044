"""What can be seen of a running program from outside: metrics, health, traces and structured logs.

A layer below servers and hosts: it knows no server, only the requests that are passed to it. Nothing here is loaded
until metrics, traces or JSON logs are used.
"""

from __future__ import annotations

__all__: list[str] = []
