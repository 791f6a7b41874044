"""Scripts that make parts of the documentation."""
