"""Tests of the command line: through the real command, and in a terminal of their own."""
