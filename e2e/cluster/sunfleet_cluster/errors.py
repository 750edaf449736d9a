"""Errors of this room.

ClusterError            something a person can mend; the message says what, where and how
  PreflightError        this machine lacks something; lists every lack at once
  StartError            a component did not become ready; carries the end of its log
"""


class ClusterError(Exception):
    """What went wrong, where, and how to mend it; printed without a traceback."""


class PreflightError(ClusterError):
    """The machine lacks what the cluster needs."""


class StartError(ClusterError):
    """A component did not start or did not become ready in time."""
