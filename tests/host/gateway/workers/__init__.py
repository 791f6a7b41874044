"""``trunkline serve --workers N``: real processes, from the supervisor to the servers behind it."""
