"""`python -m dynconv`."""

import sys

from dynconv.cli import main

sys.exit(main())
