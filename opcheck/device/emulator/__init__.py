"""Programs run, unmodified, on an emulated Mac: its dispatcher and its errors, this machine's numbers."""
