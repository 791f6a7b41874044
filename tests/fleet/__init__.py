"""The fleet: public servers and third-party clients, compared with the official client and put behind the gateway.

``python -m tests.fleet`` runs it whole; ``test_fleet.py`` checks only what needs no network.
"""
