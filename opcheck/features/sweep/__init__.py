"""``opcheck sweep``; ``feature.json`` declares it."""
