"""Settings all tests share."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# A loaded machine is no counterexample: the global timeout bounds a test, not Hypothesis's clock. Failures print the
# blob that reproduces them; no database is written into the tree.
settings.register_profile(
    "default", deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell that runs the tests in the background has them ignore interrupts, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
