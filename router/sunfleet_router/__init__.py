"""Sends each prompt to its task's prefill pods and streams decode from the shared pool. Knows pods and HTTP, not engines."""
