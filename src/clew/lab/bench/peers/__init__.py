"""Other libraries' memories beside clew's: same sizes, same run, by turns.

`families` says what is compared, `worker` runs a library in a process of its own, `compare`
checks and measures, `document` shows. The libraries live in an environment of their own, and the
programs that run them in `benchmarks/peers` of the repository.
"""
