"""Files: written whole or not at all, locked, lines that only grow, tensors as safetensors. May import `errors`."""
