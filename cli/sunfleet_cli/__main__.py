"""``python -m sunfleet_cli``."""

from sunfleet_cli.main import main

main()
