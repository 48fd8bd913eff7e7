"""Files in general, for every room above: whole or not at all, private, one process at a time, and their digests."""
