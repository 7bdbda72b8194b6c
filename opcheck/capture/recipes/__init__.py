"""Recipes: what the models of a library are called with, as YAML, and the engine that reads them."""
