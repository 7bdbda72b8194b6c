"""Each call again in float64: where digits are lost, and where a device computes something else."""
