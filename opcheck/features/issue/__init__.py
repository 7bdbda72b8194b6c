"""``opcheck issue``; ``feature.json`` declares it."""
