"""A fake engine: the two-leg API of the worker, with counted KV blocks, leases and switchable misbehaviour.

``python -m sunfleet_fakes.engine`` reads the worker's own settings from the environment. Its "text" says which prefill
module saw which prompt, which decoder went on from there, and the position of each token, so that a wrong pairing, a
prompt computed by the wrong module, or a lost or repeated token is plain to see in an answer (:mod:`.tokens`).
"""
