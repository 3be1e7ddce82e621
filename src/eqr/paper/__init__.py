"""The paper's tables, figures and claims as data, and what turns them into results.

An experiment (`experiment.py`) says which recipes to train and what to measure (`measurement.py`); a plan
(`plan.py`) is the set of independent runs that some experiments need; an executor (`executor.py`) gets them
done into a store (`store.py`); tables (`table.py`), verdicts (`verdicts.py`) and the page of them (`page.py`)
follow from what is stored. No experiment has a loop of its own.
"""
