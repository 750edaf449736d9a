"""Makes prefill modules and holds the transformers reference that every exactness test compares with."""
