"""``opcheck scan``; ``feature.json`` declares it."""
