"""The operator's process says which setting it cannot use."""

from __future__ import annotations

import pytest

from sunfleet_operator.main import main


def test_a_variable_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUNFLEET_OPERATOR_NETWORK__POLICIES", "perhaps")
    with pytest.raises(SystemExit, match=r"SUNFLEET_OPERATOR_NETWORK__POLICIES: must be a valid boolean"):
        main()
