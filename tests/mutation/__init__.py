"""Mutation tests: does some test fail when one place of the source is changed?

``python -m tests.mutation --seed 1 --count 80`` draws the changes (`draw`), finds in one instrumented run which tests
reach each of them (`reach`), and runs those tests on a copy of the tree with the change in it (`run`).
"""
