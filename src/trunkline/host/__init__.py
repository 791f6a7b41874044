"""The host: many servers under one user's control, and the gateway that serves them.

``config`` says which servers there are, ``trust`` which may run, in what ``sandbox``; ``supervision`` keeps them
running, ``catalog`` says what they offer together, ``pins`` and ``scan`` whether it is what it was and what is in it.
``policy`` says what may be done with it, ``judgement`` sees to that, ``passing`` does it, ``audit`` says what was
done. ``sampling`` and ``elicitation`` answer what servers ask; ``models`` and ``chat`` talk to a model, ``gateway``
to other clients; ``secrecy`` keeps the secrets, ``record`` recordings; ``doctor`` and ``apps`` are beside all that.
``Host`` ties them.
"""

from __future__ import annotations

__all__: list[str] = []
