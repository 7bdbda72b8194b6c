"""``opcheck verify``; ``feature.json`` declares it."""
