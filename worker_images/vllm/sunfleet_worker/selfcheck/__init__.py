"""The self-check at a pod's start, and the warm-up: before them the pod is not ready.

That the hooks are installed is one thing, that the running engine obeys them in each of its processes another. So the
pod puts requests to itself, through its own front end, and looks at how they end. ``run`` has the order of things,
``prefill`` and ``decode`` what each role must show, ``sidechannel`` the engines' handshake, ``peer`` the prefill pod
that a decode pod plays to itself, ``inside`` the requests.
"""
