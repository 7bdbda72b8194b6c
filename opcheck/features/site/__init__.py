"""``opcheck site``; ``feature.json`` declares it."""
