"""How many pods each part of a fleet needs, from measurements. Pure, and usable outside the operator: it imports
nothing but ``sunfleet_api``, knows no client and no clock, and is what the simulator replays.

``signals`` (what was measured) -> ``need`` (pods that would do) -> ``member`` (one object: zero, fallback, behavior)
-> ``fleet`` (all objects of one decoder, within its ``gpuBudget``). ``state`` is what must be remembered in between.
"""
