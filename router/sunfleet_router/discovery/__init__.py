"""Where the fleet comes from: Kubernetes (``watching``) or a file (``static``), and what the pods say of themselves.

Reads, and publishes into ``fleet`` and ``keys`` what it has read. Must not write to the API server, or decide anything
about a request.
"""
