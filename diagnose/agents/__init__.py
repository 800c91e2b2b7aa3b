"""Who is asked where no rule decides: past incidents and a model, behind one `SecondOpinion`.

Nothing here is imported by a run that has neither.
"""
