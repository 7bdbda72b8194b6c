"""``opcheck history``; ``feature.json`` declares it."""
