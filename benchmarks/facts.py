"""What the numbers of a benchmark belong to: machine and versions."""

import os
import platform
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy
import sklearn

import gaussguru
from gaussguru._native._binding import INSTRUCTION_SET


def machine_facts() -> dict[str, Any]:
    """Return facts that JSON can hold."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "machine": platform.machine(),
        "processor": models[0] if models else platform.processor(),
        "cores": joblib.cpu_count(),
        "memory GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "gaussguru": gaussguru.__version__,
        "instructions": INSTRUCTION_SET,
        "load": round(os.getloadavg()[0], 1),
    }
