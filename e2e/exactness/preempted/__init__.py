"""A package, so that its engines end with it: the next one needs their memory."""
