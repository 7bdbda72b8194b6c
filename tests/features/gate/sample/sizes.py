"""What the models import."""

WIDTH = 4
