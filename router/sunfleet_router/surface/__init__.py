"""What clients see: the application's paths, their doors, the check of keys in front, and the OpenAPI document.

From a client's bytes to a call of ``serving``, and from an error to the form that the client's API has for it. Must not
choose pods or hold room: what it serves without ``serving`` (``asides``) makes no KV and no token.
"""
