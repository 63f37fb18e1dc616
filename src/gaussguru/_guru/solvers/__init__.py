"""How a problem is minimised: settings in, a :class:`gaussguru._guru.solvers.result.Result` with its proof out."""
