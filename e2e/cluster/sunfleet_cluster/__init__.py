"""Clusters to run the fleet on: make one, look at it, load images into it, take it down.

This room is scaffolding. It may import nothing but `sunfleet_api`, and no product room imports it. Everything it
makes lies in one folder outside the source tree (`state.StateFolder`).
"""
