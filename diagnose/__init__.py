"""Explained verdicts on failed GPU training jobs."""
