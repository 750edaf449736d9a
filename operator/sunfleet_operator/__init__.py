"""Reconciles SharedDecoder and SunModel into Deployments and status. Reads, decides and writes in three separate places."""
