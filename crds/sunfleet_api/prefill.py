"""The prefill module of a task: full weights, or a LoRA adapter over the decoder's checkpoint."""

from __future__ import annotations

from typing import ClassVar

from sunfleet_api.base import ApiModel
from sunfleet_api.markers import Cel
from sunfleet_api.refs import ObjectRef
from sunfleet_api.weights import WeightsSource


class AdapterSource(WeightsSource):
    """A peft LoRA adapter."""

    pool_ref: ObjectRef | None = None
    """PrefillPool that serves the adapter. Default: own pods with this one adapter."""


class Prefill(ApiModel):
    """Exactly one of weights and adapter."""

    RULES: ClassVar = (Cel("has(self.weights) != has(self.adapter)", "set exactly one of weights and adapter"),)

    weights: WeightsSource | None = None
    """A whole checkpoint."""
    adapter: AdapterSource | None = None

    @property
    def pool_ref(self) -> ObjectRef | None:
        """The PrefillPool whose pods hold it."""
        return self.adapter.pool_ref if self.adapter else None

    @property
    def source(self) -> WeightsSource:
        """The member that is set; :class:`ValueError` when none is, which the API server prevents."""
        source = self.weights or self.adapter
        if source is None:
            raise ValueError("spec.prefill: set exactly one of weights and adapter")
        return source
