"""Everything of a server that outlives a request: values, logs, channels, limits, queues, indexes.

``interface.py`` is the interface; ``memory.py``, ``sqlite.py`` and ``redis.py`` implement it, ``open.py`` makes one
from the option ``store=``. Nothing here knows sessions, tasks or HTTP.
"""

__all__: list[str] = []
