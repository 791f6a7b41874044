"""A deterministic simulation of several workers, their clients and their store.

The code under test is the package's own; simulated are what surrounds it: time, the event loop, the network, the
store's connections and failures. A run is a pure function of its seed, so that a failure is replayed from it:
``python -m tests.simulation --seed S --runs 1 --trace``.
"""
