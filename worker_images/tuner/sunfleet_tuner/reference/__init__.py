"""The reference of the whole project: what an answer has to be, computed with transformers alone.

A task's prefill module runs over the whole prompt and gives the KV cache and the first token; the frozen decoder
continues greedily from that cache. One request at a time, no batching, no padding, float32: nothing here is clever, so
that every exactness test can be measured against it. ``python -m sunfleet_tuner.reference`` serves it over standard
input and output.
"""

from sunfleet_tuner.reference.generate import Answer, Sampling, generate
from sunfleet_tuner.reference.modules import Modules, ModuleSpec
from sunfleet_tuner.reference.score import Scores, score

__all__ = ["Answer", "ModuleSpec", "Modules", "Sampling", "Scores", "generate", "score"]
