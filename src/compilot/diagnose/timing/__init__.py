"""Time: what bounds an eager call, how far below the roof it runs, data loading, and compile time by stage."""
