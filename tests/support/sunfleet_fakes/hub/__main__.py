"""``python -m sunfleet_fakes.hub [PORT]``: a hub with sample repositories, for tests on a cluster.

``acme/base`` is a model, ``acme/maths`` and ``acme/code`` are fine-tuned copies, ``acme/other`` has another shape,
``acme/maths-lora`` and ``acme/code-lora`` are adapters, ``acme/secret`` is private (token ``hf_sample``).
"""

from __future__ import annotations

import sys

import uvicorn

from sunfleet_fakes.checkpoints import adapter_files, model_files
from sunfleet_fakes.hub.app import Hub, create_app
from sunfleet_fakes.hub.repositories import Repository

TOKEN = "hf_sample"
DEFAULT_PORT = 8000


def samples() -> Hub:
    """The hub that the program serves. Contents are the same at every start."""
    hub = Hub(tokens={TOKEN})
    for seed, name in enumerate(("acme/base", "acme/maths", "acme/code", "acme/secret")):
        hub.repositories[name] = Repository()
        hub.repositories[name].commit(model_files(seed), "main")
    hub.repositories["acme/maths"].commit(model_files(100), "v2")
    hub.repositories["acme/secret"].visibility = "private"
    hub.repositories["acme/other"] = Repository()
    hub.repositories["acme/other"].commit(model_files(7, num_hidden_layers=3), "main")
    for seed, name in enumerate(("acme/maths-lora", "acme/code-lora"), 20):
        hub.repositories[name] = Repository()
        hub.repositories[name].commit(adapter_files(seed), "main")
    hub.repositories["acme/maths-lora"].commit(adapter_files(120), "v2")
    return hub


def main() -> None:
    """Serve until stopped."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_PORT
    uvicorn.run(create_app(samples()), host="0.0.0.0", port=port, log_level="warning", lifespan="off", ws="none")


if __name__ == "__main__":
    main()
