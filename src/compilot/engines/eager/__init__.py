"""Eager: the model as it is, or with its layout or process settings changed."""
