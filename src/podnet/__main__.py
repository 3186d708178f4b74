"""`python -m podnet` is the `podnet` command."""

import sys

from podnet.cli import main

sys.exit(main())
