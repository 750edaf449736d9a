"""What every other room agrees on: the kinds, their names and labels, the wire between router and engines.

This room is pure: no I/O, no Kubernetes client, no engine. It imports nothing of the project; everything imports it.
"""
