"""The user's rules as one pure function: from an act that somebody wants done to allow, ask or deny, with the reason.

It imports no I/O, clock or chance: what a decision depends on comes in with the act.
"""
