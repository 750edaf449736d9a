"""The modules of a fleet in memory: one decoder, and prefill modules that are adapters over it or full weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peft import PeftModel
from pydantic import BaseModel, ConfigDict, model_validator
from transformers import AutoTokenizer

from sunfleet_tuner.reference.generate import Answer, Module, Sampling, generate
from sunfleet_tuner.reference.score import Scores, score
from sunfleet_tuner.weights import load_model


class ModuleSpec(BaseModel):
    """Where a prefill module's weights are. With neither field it is the decoder itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    adapter: str = ""  # folder of a peft adapter
    base: str = ""  # folder of the weights that the adapter is over; empty: the decoder's, unless that is quantised
    weights: str = ""  # folder of full weights

    @model_validator(mode="after")
    def _one_kind(self) -> ModuleSpec:
        if self.adapter and self.weights:
            raise ValueError("a prefill module is an adapter or full weights, not both")
        if self.base and not self.adapter:
            raise ValueError("'base' is the weights under an adapter, and no adapter is given")
        return self


class Modules:
    """Loads each module once, in float32; a quantised decoder as the weights it stands for.

    Adapters share the decoder's tensors and are off while it decodes.
    """

    def __init__(self, decoder: Path) -> None:
        self._folder = decoder.resolve()
        self._decoder: Any = load_model(decoder)
        self.tokenizer = AutoTokenizer.from_pretrained(decoder)
        self._full: dict[str, Any] = {}
        self._adapters: list[str] = []
        self.eos = _eos(self._decoder, self.tokenizer)

    def answer(self, spec: ModuleSpec, prompt: Sequence[int], sampling: Sampling) -> Answer:
        """``spec`` over the prompt, the decoder afterwards."""
        return generate(self.prefill(spec), self.decode, prompt, sampling, self.eos)

    def score(self, spec: ModuleSpec, prompt: Sequence[int], served: Sequence[int], sampling: Sampling) -> Scores:
        """An answer that was served, judged by the same two modules."""
        return score(self.prefill(spec), self.decode, prompt, served, sampling, self.eos)

    def prefill(self, spec: ModuleSpec) -> Module:
        """The module of ``spec``; loads it on first use."""
        if spec.weights:
            return lambda: self._full_weights(spec.weights)
        if spec.base and Path(spec.base).resolve() != self._folder:
            return lambda: self._over_another(spec.adapter, spec.base)
        if spec.adapter:
            return lambda: self._adapter(spec.adapter)
        return self.decode

    @contextmanager
    def decode(self) -> Iterator[Any]:
        """The frozen decoder, with every adapter off."""
        if not self._adapters:
            yield self._decoder
            return
        with self._decoder.disable_adapter():
            yield self._decoder

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> list[int]:
        """Token ids of a chat, with the assistant's turn opened."""
        ids: list[int] = self.tokenizer.apply_chat_template(
            list(messages), tools=tools, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return ids

    def text(self, token_ids: Sequence[int]) -> str:
        """What a client sees: special tokens left out."""
        decoded: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return decoded

    @contextmanager
    def _full_weights(self, folder: str) -> Iterator[Any]:
        if folder not in self._full:
            self._full[folder] = load_model(Path(folder))
        yield self._full[folder]

    @contextmanager
    def _over_another(self, adapter: str, base: str) -> Iterator[Any]:
        key = f"{base}+{adapter}"
        if key not in self._full:
            _check_adapter(adapter)
            self._full[key] = PeftModel.from_pretrained(load_model(Path(base)), adapter).eval()
        yield self._full[key]

    @contextmanager
    def _adapter(self, folder: str) -> Iterator[Any]:
        if folder not in self._adapters:
            self._load_adapter(folder)
        self._decoder.set_adapter(str(self._adapters.index(folder)))
        yield self._decoder

    def _load_adapter(self, folder: str) -> None:
        _check_adapter(folder)
        name = str(len(self._adapters))  # peft allows no dots in names, paths have them
        if self._adapters:
            self._decoder.load_adapter(folder, adapter_name=name)
        else:
            self._decoder = PeftModel.from_pretrained(self._decoder, folder, adapter_name=name)
        self._decoder.eval()
        self._adapters.append(folder)


def _check_adapter(folder: str) -> None:
    if not (Path(folder) / "adapter_config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no adapter (no adapter_config.json)")


def _eos(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """End-of-sequence ids as an engine takes them: the tokenizer's and those of the generation config."""
    configured = model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return tuple(sorted({token for token in (*several, tokenizer.eos_token_id) if token is not None}))
