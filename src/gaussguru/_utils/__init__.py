"""Array types and norms, DataFrames, files, progress: helpers that know neither rows nor models."""
