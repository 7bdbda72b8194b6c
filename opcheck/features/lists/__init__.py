"""``opcheck lists``; ``feature.json`` declares it."""
