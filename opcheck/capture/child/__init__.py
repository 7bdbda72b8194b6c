"""What runs in the child process, beside the model: the only part of the room that imports torch."""
