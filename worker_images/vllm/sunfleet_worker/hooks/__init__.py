"""Changes inside the engine's own processes, one file each; ``vllm_contract`` lists what they hold on to.

``scheduler`` and ``connector`` are named on the engine's command line and pull in the rest. Nothing here decides what
a request *is*: that is ``sunfleet_worker.handover``.
"""
