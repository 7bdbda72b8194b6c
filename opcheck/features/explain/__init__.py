"""``opcheck explain``; ``feature.json`` declares it."""
