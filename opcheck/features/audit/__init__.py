"""``opcheck audit``; ``feature.json`` declares it."""
