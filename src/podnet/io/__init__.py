"""Files: atomic writes, locks, append-only JSON lines, tensors as safetensors. May import `errors`."""
