"""The paper's tables, figures and claims as data, and what turns them into results.

An experiment (`experiment.py`) says which recipes to train and how to look at them (`looks.py`); a plan
(`plan.py`) is the set of independent runs that some experiments need; an executor (`executor.py`) gets them
done into a store (`store.py`); tables, figures and verdicts follow from what is stored (`results.py`).
No experiment has a loop of its own.
"""
