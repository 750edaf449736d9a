"""What the router knows of the fleet: a frozen snapshot, how one is made of Kubernetes' objects, and the current one.

Must not do I/O, and a reader never sees half a change: a snapshot is replaced as a whole.
"""
