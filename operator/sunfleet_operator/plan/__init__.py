"""Pure decisions: from what was observed to what to write. Neither kopf nor a client may be imported here."""
