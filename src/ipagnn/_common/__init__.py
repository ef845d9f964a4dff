"""What every room may use: declared options, near misses, files written whole, TOML."""
