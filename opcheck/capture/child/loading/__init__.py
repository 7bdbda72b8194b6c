"""Models of every kind, loaded without their weights: classes, files, checkpoints, exported programs."""
