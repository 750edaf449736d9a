"""Weights by URI: what they are (``resolve``), and getting them to a folder (``fetch``).

Runs on a CPU, as the operator's resolver Job and as an init container of engine pods, without a service-account token
and without the engine. Layers: ``cli`` -> ``cache``, ``sources`` -> ``fetch``, ``inspect`` and the places ``hub``,
``bucket``, ``image`` (over ``registry``), ``local`` -> ``progress``, ``hashing``, ``errors``. ``hold`` runs by
itself. What is found goes out as :class:`sunfleet_api.worker.ResolverReport`.
"""
