"""``opcheck weights``; ``feature.json`` declares it."""
