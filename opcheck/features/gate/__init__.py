"""``opcheck gate``; ``feature.json`` declares it."""
