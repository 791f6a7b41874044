"""Small servers in the style of other frameworks, run unchanged."""
