"""``python -m sunfleet_weights``."""

import sys

from sunfleet_weights.cli import main

if __name__ == "__main__":
    sys.exit(main())
