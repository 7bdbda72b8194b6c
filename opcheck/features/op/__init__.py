"""``opcheck op``; ``feature.json`` declares it."""
