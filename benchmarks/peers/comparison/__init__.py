"""Other libraries' memories beside clew's: same sizes, same run, by turns.

`families` lists the comparisons, `processes` starts the program that runs a library (`*_worker.py`
beside this folder) in a process and an environment of its own, `compare` checks and measures,
`document` presents the results.
"""
