"""The host: many servers under one user's control, and the gateway that serves them.

``config`` defines which servers there are. ``upstreams`` keeps them running (``supervision``), lists what they offer
together (``catalog``) and sends them requests (``routing``). ``integrity`` checks what may run and whether definitions
changed (trust, pins, scan); ``sandbox`` confines processes; ``secrets`` stores and masks secrets. ``authorization``
decides about each call by the user's policy, approvals and grants; ``audit`` records it. ``server_requests`` answers
sampling, elicitation and roots; ``models`` and ``chat`` use a model; ``gateway`` serves other clients. ``Host`` is the
public class over all of it.
"""

from __future__ import annotations

__all__: list[str] = []
