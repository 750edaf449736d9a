"""The demo: a fleet from two manifests, two tasks asked through the OpenAI API, and the proof that they are exact.

It uses the cluster and the installation that are there (``make demo`` makes them first) and leaves the fleet running.
"""
