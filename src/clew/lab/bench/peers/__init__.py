"""Other libraries' memories beside ours: same sizes, same run, by turns.

`families` says what is compared, `worker` runs a library in a process of its own, `compare`
measures, `tables` and `picture` show it. The libraries live in an environment of their own
(`environment`), and what runs there in `benchmarks/peers` of the repository.
"""
