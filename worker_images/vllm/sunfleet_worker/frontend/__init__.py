"""The pod's HTTP surface: the engine's OpenAI server with the hand-over's rules, and our own few routes.

``checks`` (pure) decides what a pod refuses; ``serving`` holds thin subclasses of the engine's serving classes;
``streams`` ends streams honestly; ``gate`` is the outermost middleware: which routes exist, drain, requests in flight.
"""
