"""Lower bounds of an objective, from dual points."""
