"""Kept lines to lines, records, progress, attempts and the inventory of units."""
