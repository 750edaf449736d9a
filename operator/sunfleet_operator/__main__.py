"""``python -m sunfleet_operator``."""

from sunfleet_operator.main import main

main()
