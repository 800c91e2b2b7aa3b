"""The service without HTTP: what was accepted is remembered, done once, and told.

In: submissions. Out: diagnoses in the database. `submissions` is the repository, `work` does one, `queue` says how work
reaches workers; the logic of a diagnosis is `pipeline.diagnose` alone. Needs the extra `service`.
"""
