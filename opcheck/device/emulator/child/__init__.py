"""What runs in the program's process on the emulated Mac, where torch is imported."""
