"""What Python sees of another machine and another release of torch: names, versions, modules, methods."""
