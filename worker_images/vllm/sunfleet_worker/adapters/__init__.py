"""Adapters of a PrefillPool's pod, which come and go while the engine runs.

``shelf`` is what requests see, ``depot`` the folder that the pod's downloader fills, ``keeper`` makes the one follow
what the operator wants, ``engine`` loads and drops, ``admin`` is the port on which the operator says what it wants.
"""
