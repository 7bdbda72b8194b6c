"""``opcheck repro``; ``feature.json`` declares it."""
