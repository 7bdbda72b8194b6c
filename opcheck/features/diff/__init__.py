"""``opcheck diff``; ``feature.json`` declares it."""
