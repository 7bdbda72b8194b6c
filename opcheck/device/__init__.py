"""Programs on a device: emulated here, observed on a Mac; and the machine itself."""
