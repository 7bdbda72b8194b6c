"""``opcheck run``; ``feature.json`` declares it."""
