// The benchmark's engine and load generator; the standard library alone.
module sunfleet.dev/bench/router

go 1.24.0
