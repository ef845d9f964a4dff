"""Message passing over the nodes of control flow graphs."""
