"""What the tests against a real API server share: a thin client, tables of manifests, and probes made from a schema."""
