"""``opcheck upgrade``; ``feature.json`` declares it."""
