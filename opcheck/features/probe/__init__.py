"""``opcheck probe``; ``feature.json`` declares it."""
