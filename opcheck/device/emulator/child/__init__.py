"""What runs beside the program on the emulated Mac, where torch is imported."""
