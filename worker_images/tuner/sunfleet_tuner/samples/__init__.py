"""Makes the small real models of the demo and the tests on a CPU and without a hub: a base, two tasks, a merged module."""
