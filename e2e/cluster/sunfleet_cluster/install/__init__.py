"""Installs the fleet's CRDs, operator and router on a cluster, and takes them off again, as a user does: with kubectl.

`overlay` (which images the manifests get) and `waiting` (what a Deployment lacks) are pure; `fleet` does the work.
"""
