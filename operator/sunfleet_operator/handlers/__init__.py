"""All of kopf's decorators, and nothing else: each handler calls one function. No kopf elsewhere but in ``main``."""
