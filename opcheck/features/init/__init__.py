"""``opcheck init``; ``feature.json`` declares it."""
