"""Stand-ins for what a test must not wait for or cannot have: the engine and the model hub.

They speak the real protocols over real sockets and can be told to misbehave. Product rooms never import this package.
"""
