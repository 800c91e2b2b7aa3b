"""`python -m diagnose` is `diagnose`."""

import sys

from diagnose.start import main

sys.exit(main())
