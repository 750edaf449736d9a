"""``python -m sunfleet_router.keys NAME --task PATTERN``: make an API key."""

import sys

from sunfleet_router.keys.making import main

sys.exit(main())
