"""The model itself: what one look at eager tells, without a compiler."""
