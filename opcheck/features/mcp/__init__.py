"""``opcheck mcp``; ``feature.json`` declares it."""
