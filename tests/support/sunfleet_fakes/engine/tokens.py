"""Tokens whose text tells where they come from. Pure, and the oracle of the tests.

The first token depends on the prefill module and the prompt, every later one on that KV and the decoder::

    " p3f1c.0 d9a02.1 d9a02.2"

``p3f1c`` is the tag of (prefill module, prompt ids), ``d9a02`` the tag of (``3f1c``, decoder module). A decoder that is
fed other tokens than the ones it would have made goes on under another tag.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

EOS: Final = 2
_WORDS_FROM: Final = 16  # ids below are special
_WORDS: Final = 32_000
_FIRST_FROM: Final = 1 << 20  # prefill tokens, then decode tokens: one id per (tag, position)
_DECODE_FROM: Final = 1 << 30
_POSITIONS: Final = 1 << 13
_TAGS: Final = 1 << 16
_HASH_LIMIT: Final = 1 << 20  # of each file: identity, not integrity


def module_identity(model_path: str, adapter_path: str = "") -> str:
    """A short name for the weights at these paths: their content where they exist, otherwise the paths themselves."""
    parts = [_path_identity(Path(model_path))]
    if adapter_path:
        parts.append(_path_identity(Path(adapter_path)))
    return _digest(*parts)[:16]


def tokenize(text: str) -> list[int]:
    """One id per word; equal words have equal ids."""
    return [_WORDS_FROM + zlib.crc32(word.encode()) % _WORDS for word in text.split()]


def kv_tag(prefill_identity: str, prompt: Sequence[int]) -> int:
    """Tag of the KV that a prefill module makes of a prompt."""
    return _tag("kv", prefill_identity, *map(str, prompt))


def prompt_tag(prompt: Sequence[int]) -> int:
    """Tag of the prompt ids alone."""
    return _tag("prompt", *map(str, prompt))


def decode_tag(kv: int, decoder_identity: str) -> int:
    """Tag of what a decoder makes of that KV."""
    return _tag("decode", str(kv), decoder_identity)


def spoiled_tag(tag: int, *causes: object) -> int:
    """Tag of a continuation that started from something wrong."""
    return _tag("spoiled", str(tag), *map(str, causes))


def first_token(kv: int, answer_tokens: int) -> int:
    """The prefill's token; end of sequence when the whole answer is one token long."""
    return EOS if answer_tokens <= 1 else _FIRST_FROM + kv * _POSITIONS


def later_token(tag: int, position: int, answer_tokens: int) -> int:
    """The decoder's token at ``position`` (1, 2, ...) of an answer of ``answer_tokens`` tokens, the last being EOS."""
    return EOS if position >= answer_tokens - 1 else _DECODE_FROM + tag * _POSITIONS + position % _POSITIONS


def token_text(token: int) -> str:
    """Text of a token, with its leading space; EOS has none."""
    if token == EOS:
        return ""
    if token >= _DECODE_FROM:
        tag, position = divmod(token - _DECODE_FROM, _POSITIONS)
        return f" d{tag % _TAGS:04x}.{position}"
    if token >= _FIRST_FROM:
        tag, position = divmod(token - _FIRST_FROM, _POSITIONS)
        return f" p{tag:04x}.{position}"
    return f" w{token}"


def expected_tokens(
    prefill_identity: str, decoder_identity: str, prompt: Sequence[int], *, answer_tokens: int, max_tokens: int
) -> list[int]:
    """The only right answer: the task's module over the prompt, the decoder afterwards."""
    kv = kv_tag(prefill_identity, prompt)
    tag = decode_tag(kv, decoder_identity)
    length = min(answer_tokens, max_tokens)
    return [first_token(kv, answer_tokens), *(later_token(tag, at, answer_tokens) for at in range(1, length))][:length]


def expected_text(
    prefill_identity: str, decoder_identity: str, prompt: Sequence[int], *, answer_tokens: int, max_tokens: int
) -> str:
    """Text of :func:`expected_tokens`."""
    tokens = expected_tokens(
        prefill_identity, decoder_identity, prompt, answer_tokens=answer_tokens, max_tokens=max_tokens
    )
    return "".join(map(token_text, tokens))


def _path_identity(path: Path) -> str:
    if not path.is_dir():
        return str(path)
    files = sorted(entry for entry in path.rglob("*") if entry.is_file())
    return _digest(*(f"{file.relative_to(path)}:{_file_identity(file)}" for file in files))


def _file_identity(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.sha256(stream.read(_HASH_LIMIT)).hexdigest()


def _tag(*parts: str) -> int:
    return int(_digest(*parts)[:4], 16)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
