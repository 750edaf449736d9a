"""API keys of clients: what a key may do, how one is found, and the command that makes one (``python -m
sunfleet_router.keys``).

Must not keep, log or write a key itself: only its SHA-256 is known here.
"""
