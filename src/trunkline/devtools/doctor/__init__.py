"""Diagnoses why a server does not work, or works badly: every finding is a ``Check``, most with a fix.

``examine`` runs the checks in order, beginning with configuration and machine, and stops where going on makes no sense;
``remote`` checks network and login of a URL, ``connection`` the server itself, ``lint`` its definitions. No server is
started that the user has not approved, and no tool is ever called.
"""

__all__: list[str] = []
