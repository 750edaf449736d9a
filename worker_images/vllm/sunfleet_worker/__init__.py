"""Turns a role and settings into a vLLM server that keeps the exactness contract. Talks to no Kubernetes API."""
