"""Pure builders of manifests: each takes plain values and returns one complete object for server-side apply.

Nothing here reads the cluster, the clock or settings, and nothing imports kopf or a client.
"""
