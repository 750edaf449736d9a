"""A fleet as a discrete-event model: the scaler's real policy decides, engines are cost curves. Pure and seeded."""
