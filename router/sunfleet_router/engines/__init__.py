"""Calls to engines: connections that are kept, a stream moved from one socket to another, clocks, and whose fault a
failure was.

Must not choose a pod, try another one, or change what is said: whom to ask and what comes next is for ``serving``,
what is said for ``bodies``.
"""
