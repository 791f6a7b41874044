"""The fault test: many servers that die, hang, flood and lie, and clients that call through the gateway all the while.

``python -m tests.faults --seed N`` runs it whole, ``test_faults.py`` a small one. What is done is chosen by the seed.
"""
