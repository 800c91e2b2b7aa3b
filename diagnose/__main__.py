"""`python -m diagnose` is `diagnose`."""

import sys

from diagnose.cli import main

sys.exit(main())
