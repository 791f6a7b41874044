"""Measure Trunkline beside its peers and the bare floor in one run; `python -m benchmarks` prints the ratios."""
