"""``opcheck compare``; ``feature.json`` declares it."""
