"""Prefix-cache isolation of generated tokens.

A decoder's KV of an answer was computed with the decoder's weights. In the chat's next turn that answer is *prompt*,
and its KV must come from the prefill module. So a block that holds any generated position gets a key of its own
request: it still chains, but no other request can ever match it. Blocks of prompt positions only keep their ordinary,
salted keys.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.request import Request

BlockHasher = Callable[[Request], list[BlockHash]]


def isolate_generated_blocks(request: Request, hash_block_size: int) -> None:
    """From now on, hash blocks with generated positions privately. Call before the first output token is appended."""
    base: BlockHasher | None = request._block_hasher
    if base is None:  # prefix caching is off
        return
    request._block_hasher = _private_hasher(base, hash_block_size, secrets.token_bytes(16))


def _private_hasher(base: BlockHasher, hash_block_size: int, key: bytes) -> BlockHasher:
    def hashes_of_new_blocks(request: Request) -> list[BlockHash]:
        first = len(request.block_hashes)
        return [
            block_hash if (index + 1) * hash_block_size <= request.num_prompt_tokens else _keyed(block_hash, key)
            for index, block_hash in enumerate(base(request), start=first)
        ]

    return hashes_of_new_blocks


def _keyed(block_hash: BlockHash, key: bytes) -> BlockHash:
    return BlockHash(hashlib.blake2b(bytes(block_hash), key=key, digest_size=len(block_hash)).digest())
