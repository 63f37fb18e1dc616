"""Settings that must hold before SciPy is imported."""

import os
import signal

# scikit-learn's array API checks run only with this.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# A shell that runs tests in the background has them, and all that they start, ignore Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)
