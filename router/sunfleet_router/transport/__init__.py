"""HTTP/1.1 over sockets, to clients (``front``, ``exchange``) and to engines (``connection``), on asyncio or on the
native pump.

Moves bytes and says when a side is gone. Must not know tasks, pods or what a body means.
"""
