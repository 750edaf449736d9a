"""A fake model hub: the part of the Hugging Face hub's protocol that ``huggingface_hub`` uses to look and to download.

Model info with file metadata, ``resolve`` with commit and ETag headers, large files behind a redirect and with ranges,
tokens, private and gated repositories, and faults: errors, cut connections, damaged bytes.
"""
