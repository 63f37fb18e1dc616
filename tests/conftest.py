"""Settings that must hold before SciPy is imported."""

import os

# scikit-learn's array API checks run only with this.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
