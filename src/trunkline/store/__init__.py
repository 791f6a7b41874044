"""What several workers and machines share: values, logs, channels, limits and queues behind one small interface.

``interface.py`` is the interface, ``memory.py`` and ``redis.py`` implement it, ``open.py`` makes one from a URL.
Nothing here knows sessions, tasks or HTTP. A server without ``store=`` loads none of it.
"""

__all__: list[str] = []
