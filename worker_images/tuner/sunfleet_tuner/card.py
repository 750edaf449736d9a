"""The model card of a prefill module, from its ``sunfleet.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sunfleet_tuner.checkpoint import CheckpointMeta
from sunfleet_tuner.intervals import share

_TEMPLATE = """\
---
{front}
---

# {name}

{task}A **prefill module** for [SUN](https://arxiv.org/abs/2603.02599): it reads the prompt and makes the answer's first
token; the rest is written by the frozen decoder `{decoder}`, from this module's KV cache. It was tuned for that split
and gives worse answers when one model does both.

| | |
|---|---|
| form | {form} |
| decoder | `{decoder}`, digest `{digest}` |
| started from | `{base}` |
| data | {data} |
{metrics}
{accuracy}## Serving

```yaml
apiVersion: serving.sunfleet.dev/v1alpha1
kind: SunModel
metadata: {{ name: {object_name} }}
spec:
  decoderRef: {{ name: DECODER }}
  prefill: {{ {field}: {{ uri: URI-OF-THIS-FOLDER }} }}
```

`golden.json` holds prompts with the reference's answers; `sunfleet.json` how the module came about; `metrics.jsonl` and
`loss.png` the course of training.

## Settings

```yaml
{settings}
```
"""


def card(meta: CheckpointMeta) -> str:
    """Markdown with the front matter that hubs read."""
    lora = meta.method == "prefill-only-lora"
    dropped = "".join(f", {count} left out ({why})" for why, count in meta.data.dropped.items())
    return _TEMPLATE.format(
        front="\n".join(_front(meta, lora)),
        name=meta.name,
        task=f"{meta.task}\n\n" if meta.task else "",
        decoder=meta.decoder.name,
        form="LoRA adapter (peft)" if lora else "full weights",
        digest=meta.decoder.digest,
        base=meta.base.name,
        data=f"{meta.data.name}: {meta.data.training_rows} rows, {meta.data.validation_rows} to validate{dropped}",
        metrics="".join(f"| {name.replace('_', ' ')} | {value:g} |\n" for name, value in meta.metrics.items()),
        accuracy=_accuracy(meta),
        object_name=meta.name.lower().replace("_", "-"),
        field="adapter" if lora else "weights",
        settings="\n".join(f"{name}: {json.dumps(value)}" for name, value in meta.hyperparameters.items()),
    )


def _front(meta: CheckpointMeta, lora: bool) -> Iterator[str]:
    yield f"library_name: {'peft' if lora else 'transformers'}"
    yield f"base_model: {json.dumps(meta.base.name)}"
    yield "tags: [sunfleet, prefill-module]"


def _accuracy(meta: CheckpointMeta) -> str:
    if not meta.accuracy:
        return ""
    lines = [f"| {row.prefill} -> {row.decode} | {share(row.correct, row.total)} |" for row in meta.accuracy]
    return "\n".join(["| prefill -> decode | right answers |", "|---|---|", *lines]) + "\n\n"
