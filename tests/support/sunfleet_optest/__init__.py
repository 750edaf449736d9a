"""What the operator's tests share: objects, an API server in memory, and a world that moves by itself."""
