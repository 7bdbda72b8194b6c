"""``opcheck observe-all``; ``feature.json`` declares it."""
