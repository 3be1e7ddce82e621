"""The same commands on a cluster: Ray hands out the work, eqr says what the work is.

`connect.py` finds a cluster, or says plainly why it cannot; `executor.py` does the jobs of `eqr reproduce`
and `eqr sweep` there, in a folder that every node sees; `evaluate.py` runs the parts of a candidates
table; `tasks.py` is what the machines do. Nothing else in eqr knows of Ray, and nothing here is loaded unless
`--on ray` asks for it.
"""
