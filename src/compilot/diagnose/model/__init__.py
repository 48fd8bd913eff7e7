"""The model itself: what one look at eager shows, without a compiler."""
