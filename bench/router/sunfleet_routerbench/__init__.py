"""The router measured beside its peers, and soaked in faults, on this machine's loopback.

Go programs beside this package play the engines and the clients (``go/``); this package builds and starts them and the
routers, one router at a time and round after round, so that what else the machine does hits all of them. Layers:
``__main__`` -> ``bench``, ``soak`` -> ``machine``, ``programs``, ``contenders`` -> ``scenarios``, ``results``,
``table`` (pure). It must not import a product room: it meets the router as a process, like every other contender.
"""
