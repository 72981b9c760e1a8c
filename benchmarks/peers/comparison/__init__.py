"""Other libraries' memories beside clew's: same sizes, same run, by turns.

`families` says what is compared, `processes` starts the program that runs a library (`*_worker.py`
beside this folder) in a process and an environment of its own, `compare` checks and measures,
`document` shows.
"""
