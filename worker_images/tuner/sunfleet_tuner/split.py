"""Two copies of weights in one pass: prompt columns through the prefill module's layers, others through the decoder's.

Each token-wise part computes only the rows that are its own, so a pass costs no more arithmetic than an ordinary one,
and less in the backward pass: the decoder's weights need no gradient.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from peft.tuners.lora import LoraLayer

from sunfleet_tuner.columns import Columns

TWIN: Final = "decoder_twin"  # submodule of a prefill layer that holds the decoder's; never part of what is saved
_PEFT_PREFIX: Final = "base_model.model."


def split(prefill: torch.nn.Module, decoder: torch.nn.Module, columns: Columns) -> None:
    """Wire ``decoder``'s layers into ``prefill``'s, for all columns that are not in ``columns``.

    The twins become submodules, so that whatever moves or shards the prefill module's blocks takes them along. Frozen
    layers that hold equal values share the decoder's tensors and are not split. Raises TypeError for a layer that is
    not known to work token by token.
    """
    for name, unit in _units(prefill):
        twin = decoder.get_submodule(name.removeprefix(_PEFT_PREFIX))
        if _same_and_frozen(unit, twin):
            _share(unit, twin)
            continue
        for part, module in _layers(unit, name):
            _check_token_wise(part, module)
        _wire(unit, twin, columns)


def _units(model: torch.nn.Module, prefix: str = "") -> list[tuple[str, torch.nn.Module]]:
    """The outermost modules that work token by token, by name: whole MLPs, and layers that hold weights themselves.

    An MLP is cut once instead of three times, and its widest tensors not at all.
    """
    units = []
    for name, module in model.named_children():
        path = prefix + name
        if _is_layer(module) or type(module).__name__.endswith("MLP"):
            units.append((path, module))
        else:
            units += _units(module, f"{path}.")
    return units


def _layers(unit: torch.nn.Module, name: str) -> list[tuple[str, torch.nn.Module]]:
    """The layers with weights that a unit is, or is made of."""
    if _is_layer(unit):
        return [(name, unit)]
    return [found for child, module in unit.named_children() for found in _layers(module, f"{name}.{child}")]


def _is_layer(module: torch.nn.Module) -> bool:
    return isinstance(module, LoraLayer) or bool(module._parameters)


def _same_and_frozen(unit: torch.nn.Module, twin: torch.nn.Module) -> bool:
    adapted = any(isinstance(module, LoraLayer) for module in unit.modules())
    if adapted or any(value.requires_grad for value in unit.parameters()):
        return False
    ours, theirs = dict(unit.named_parameters()), dict(twin.named_parameters())
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def _share(unit: torch.nn.Module, twin: torch.nn.Module) -> None:
    for name, layer in unit.named_modules():
        for parameter, value in twin.get_submodule(name)._parameters.items():
            layer.register_parameter(parameter, value)


def _check_token_wise(name: str, unit: torch.nn.Module) -> None:
    kind = type(unit).__name__
    if isinstance(unit, torch.nn.Linear | torch.nn.Embedding | LoraLayer) or kind.endswith("Norm") or kind == "Conv1D":
        return
    raise TypeError(
        f"{name} is a {kind}, which is not known to work on each token alone: this architecture cannot be tuned with "
        "two copies of weights"
    )


def _wire(unit: torch.nn.Module, twin: torch.nn.Module, columns: Columns) -> None:
    own = unit.forward

    def forward(values: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        if columns.mask is None:
            plain: torch.Tensor = own(values, *rest, **options)
            return plain
        prompt, answer = columns.split(values)
        return columns.join(own(prompt, *rest, **options), twin(answer, *rest, **options), like=values)

    unit.add_module(TWIN, twin)
    unit.forward = forward
