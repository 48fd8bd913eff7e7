"""inductor stage."""
