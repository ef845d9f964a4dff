"""Message passing on a GPU, in Triton."""
