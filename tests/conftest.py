"""Settings all tests share."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A loaded machine is no counterexample: the global timeout bounds a test, not Hypothesis's clock. Failures print the
# blob that reproduces them; no database is written into the tree.
settings.register_profile(
    "default", deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
