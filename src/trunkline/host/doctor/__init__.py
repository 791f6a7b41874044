"""Finds out why a server does not work, or works badly: every finding is a ``Check``, most with the fix.

``examining`` asks in order and stops where going on makes no sense; ``preparing`` looks at the configuration and the
machine, ``network`` at the way to a URL, ``logins`` at who may use it, ``meeting`` at the server itself, ``linting`` at
what it offers. Nothing is started that the user has not approved, and no tool is ever called.
"""

__all__: list[str] = []
