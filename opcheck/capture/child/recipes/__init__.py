"""The recipes for the inputs of a library's models, as YAML, and the engine that reads them."""
