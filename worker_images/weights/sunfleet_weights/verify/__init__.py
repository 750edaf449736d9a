"""Golden prompts through a pair of engine pods, both legs as the router does them, and what came back."""
