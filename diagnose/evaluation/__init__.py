"""How good the answers are: labelled jobs through the pipeline, and what their labels say of the answers.

In: directories of labelled cases. Out: an `Evaluation`, and its renderings. `run.evaluate` is the entry.
"""
