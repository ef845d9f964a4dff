"""Programming languages that programs are drawn from."""
