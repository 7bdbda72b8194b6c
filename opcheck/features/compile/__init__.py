"""``opcheck compile``; ``feature.json`` declares it."""
