"""Attacks on the model and the user, by hostile servers written for the purpose: each is stopped or asked about."""
