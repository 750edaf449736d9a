// What the smoke tests run in pods; the standard library alone.
module sunfleet.dev/e2e/cluster/probe

go 1.24.0
