"""A code review across servers, and stand-ins for the services it talks to."""
