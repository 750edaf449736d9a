"""Makes the small real models of demo and tests, on a CPU and without a hub: a base, two adapters, a merged module."""
