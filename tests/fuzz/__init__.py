"""Fuzzers, of problems and of files: programs, of which the suite runs short versions."""
