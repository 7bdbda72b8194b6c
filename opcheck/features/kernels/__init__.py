"""``opcheck kernels``; ``feature.json`` declares it."""
