"""The operator: watches SharedDecoders and SunModels and makes the cluster look as they say.

kopf only watches: its event handlers (``handlers``) put keys on one work queue (``workqueue``). A worker takes a key
and runs ``reconcile``: ``observe`` reads the live objects into one frozen value, ``plan`` (pure) decides, using the
pure manifest builders in ``build``, and ``apply`` writes. Nothing here writes a user's ``.spec`` or talks to an
engine.
"""
