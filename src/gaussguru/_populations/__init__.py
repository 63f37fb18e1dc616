"""Populations of true values: readings with errors, mixtures of Gaussians, EM."""
