"""What every room may use: files written whole, TOML."""
