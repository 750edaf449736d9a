"""What the demo and the cluster suites share: kubectl, the fleet as it is, the router's client, the reference."""
