"""Error bars: the noise covariance ``Sigma_i`` of every sample, in any form.

An error is a standard deviation, in the units of the feature. ``given`` has the forms other than arrays in which users
give errors; ``parse`` checks all forms and turns them into a few; ``samples`` has X that carries its errors;
``missing`` fills in values that were not measured. Problems compute with ``forms`` (their interface), ``independent``,
``correlated`` and ``sparse``, which ``checks`` makes of parsed errors. ``conventions`` knows the names of error columns
in tables, ``columns`` makes values with errors of such columns; both do without SciPy, for refusals of the command, so
names are imported from these modules and not from the package.
"""
