"""What is said to clients and to engines, as data: request bodies, both legs', events, answers. Pure.

Must not do I/O, know pods, or judge what is the engine's to judge: a field that the router need not understand passes.
"""
