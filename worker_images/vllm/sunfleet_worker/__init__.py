"""Engine pods: one vLLM server that plays one role of SUN, ``prefill`` or ``decode``.

Entry point ``python -m sunfleet_worker``. Layers, outer to inner: ``launch``, ``engine`` (run things) -> ``frontend``
(HTTP) and ``hooks`` (scheduler, connector, model runner; they load in the engine's own processes) -> ``plan``,
``extra_args``, ``handover`` (pure). This room does not talk to Kubernetes and knows nothing of tasks: a pod serves one
module.
"""
