"""What runs in the child process, next to the model: the only part of the room that imports torch."""
