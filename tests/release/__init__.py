"""The distributions: their metadata, what is in them, and the workflow that publishes them."""
