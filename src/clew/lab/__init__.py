"""The laboratory beside the library: grids of runs, studies, costs and benchmarks."""
