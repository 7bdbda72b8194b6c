"""``opcheck matrix``; ``feature.json`` declares it."""
