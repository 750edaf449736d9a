"""Resolves and downloads weights on a CPU, so that no GPU waits for a file and no engine holds a token."""
