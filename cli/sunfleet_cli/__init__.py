"""The ``sunfleet`` command: look at a fleet, ask it, and try its scaling on a trace before it costs GPUs.

``sim`` is pure: a discrete-event model of a fleet and the scaler's own policy, replayed in seconds. ``main`` and
``commands`` are the command line; only they read files, clusters and the clock.
"""
