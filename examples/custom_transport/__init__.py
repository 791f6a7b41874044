"""A transport of your own, shown in two ways."""
