"""Smoothing: what makes an objective easy first, and what is left of it at the end.

The scale of a sample in a smoothed problem is ``a = hypot(noise * a_0, blur)``, where ``a_0`` is its scale in the
problem itself. ``noise >= 1`` multiplies all standard deviations; ``blur`` is a little noise on the margin itself.

* For small noise F is nearly piecewise linear, and Newton's method alone would crawl. With more noise it is smooth.
* Where ``w`` vanishes, or a sample is exact, the loss has a kink. Blur rounds it off: F rises by at most
  ``blur sum s f*``, and the slopes at a minimum are a feasible dual point of the problem without blur, because
  ``|grad a|`` only becomes shorter. So classifiers that collapse, and exact samples, need no special case.

A solver follows the minimum as both go down (:mod:`gaussguru._solvers.newton`).
"""

import math
from typing import NamedTuple


class Smoothing(NamedTuple):
    """How much smoother a problem is than the one to be solved."""

    noise: float = 1.0
    blur: float = 0.0

    def towards(self, less: "Smoothing") -> "Smoothing":
        """Return the fractions by which both fall on the way to less smoothing."""
        return Smoothing(*(1 - new / old if old else 0.0 for old, new in zip(self, less, strict=True)))

    @property
    def lower_noise(self) -> float:
        """The next noise on the way to 1, in equal steps of about SPEED each."""
        steps = max(1, round(math.log(self.noise, SPEED)))
        return self.noise ** (1 - 1 / steps) if steps > 1 else 1.0


NONE = Smoothing()


# What is at most this fraction of something is negligible beside it: blur beside the scales of the noise, smoothing
# beside how far a minimum moves, what is left of a derivative or of a residual, a decrement beside F, a slack
# beside the margin. Its square: the Hessian weight of a row beside their mean.
NEGLIGIBLE = 0.1
# Noise and blur fall by about this factor where the minimum is followed.
SPEED = 2.5
# The first blur, in units of the margin, where a classifier may collapse.
FIRST_BLUR = 0.1
# A subsample is left where smoothing is below this fraction of the distance to the minimum of more rows (measured on
# covtype and mnist: their minimum rose along the rest of the path).
UNCERTAIN = 0.5
# A subsample has at least this many rows of each class, if there are so many.
RARE = 50
