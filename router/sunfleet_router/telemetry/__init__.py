"""What the router tells of itself: metrics, spans, and logs with their request's id.

Must not carry a prompt, an answer or a key, or grow with what clients send: labels' values are bounded by the fleet.
Spans' protocol is the module ``trace``, a word that all rooms share; here is what OpenTelemetry makes of it.
"""
