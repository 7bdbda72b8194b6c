"""Static pages of all that the op lists say, and of a sweep's models: for a web server, or for a folder."""
