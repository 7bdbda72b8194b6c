"""Read macOS arm64 wheels without executing them (``builder`` needs the extra ``wheels``)."""
