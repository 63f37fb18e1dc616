"""Smoothing: a factor of the noise and a blur of the margins, which make an objective easier to minimise.

The scale of a sample in a smoothed problem is ``a = hypot(noise * a_0, blur)``, where ``a_0`` is its scale in the
problem itself. ``noise >= 1`` multiplies all standard deviations; ``blur`` is a little noise on the margin itself.

* For small noise F is nearly piecewise linear, and Newton's method takes many short steps. More noise makes F smooth.
* Where ``w`` vanishes, or a sample is exact, the loss has a kink. Blur rounds it off: F rises by at most
  ``blur sum s f*``, and the slopes at a minimum are a feasible dual point of the problem without blur, because blur
  shortens ``|grad a|``. So classifiers that collapse, and exact samples, need no special case.

A solver follows the minimum as both go down (:mod:`gaussguru._guru.solvers.newton`).
"""

import math
from typing import NamedTuple


class Smoothing(NamedTuple):
    """The smoothing of a problem; ``Smoothing(1, 0)`` is none."""

    noise: float = 1.0
    blur: float = 0.0

    def towards(self, less: "Smoothing") -> "Smoothing":
        """Return the relative decreases of noise and blur down to ``less``."""
        return Smoothing(*(1 - new / old if old else 0.0 for old, new in zip(self, less, strict=True)))

    @property
    def lower_noise(self) -> float:
        """The next noise on the way to 1, in equal steps of about SPEED each."""
        steps = max(1, round(math.log(self.noise, SPEED)))
        return self.noise ** (1 - 1 / steps) if steps > 1 else 1.0


NONE = Smoothing()


# A quantity is negligible below this fraction of another one: blur of the scale of the noise, smoothing of the
# distance to a minimum, a derivative or residual of its first value, a slack of the margin. The Hessian weight of a row
# is negligible below the square of this fraction of the mean weight.
NEGLIGIBLE = 0.1
# Noise and blur fall by about this factor per step of the continuation.
SPEED = 2.5
# The first blur, in units of the margin, if a classifier may collapse.
FIRST_BLUR = 0.1
# A subsample is left when smoothing falls below this fraction of the distance to the minimum of more rows (measured on
# covtype and mnist: F of all rows rose along the rest of the path).
UNCERTAIN = 0.5
# A subsample has at least this many rows of each class, or all of them.
RARE = 50
