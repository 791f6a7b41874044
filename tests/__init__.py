"""The tests of Trunkline; each folder mirrors one of the source."""
