"""``opcheck doctor``; ``feature.json`` declares it."""
