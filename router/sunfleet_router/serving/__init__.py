"""One request on its way: ``flow`` knows the order of things, ``streaming`` a stream and its resumes, ``pairing`` the
two pods for either.

Everything that a request holds (a place, decode room, KV on a prefill pod) is given back here, however it ends. Must
not know which path or API a request came by, or where the fleet is read from.
"""
