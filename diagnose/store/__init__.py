"""The memory of past runs: a database of jobs, attempts, diagnoses and incidents, and the index to find them by.

Open first: `tables.py` (what is kept), `database.py` (where, and in which transactions), `memory.py` (one run's part).
Nothing here is imported by a run without a memory.
"""
