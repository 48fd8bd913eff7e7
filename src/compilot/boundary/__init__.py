"""Regions, tuning plane: from a model and a candidate with regions to the files of their engines."""
