"""The commands: each reads its options, asks one pure function, and prints."""
