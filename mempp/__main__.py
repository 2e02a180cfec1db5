"""`python -m mempp` is the command `mempp`."""

import sys

from mempp.cli import main

sys.exit(main())
