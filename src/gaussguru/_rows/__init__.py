"""X as blocks of rows, with labels, weights and error bars; where blocks are mapped; matrices and kernels."""
