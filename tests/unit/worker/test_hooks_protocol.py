"""The recorded fields of the engine's request bodies, by which the router decides, are the installed engine's."""

from __future__ import annotations

from sunfleet_engine_protocol import installed, recorded


def test_the_recorded_request_fields_are_the_installed_engines() -> None:
    assert installed() == recorded(), (
        "the engine's request bodies have changed. In its environment run "
        "`PYTHONPATH=tests/support python -m sunfleet_engine_protocol`, then decide on new fields in "
        "tests/unit/router/bodies/test_engine_fields.py and docs/openai-api.md"
    )
