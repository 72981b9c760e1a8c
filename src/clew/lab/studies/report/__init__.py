"""Reports of studies: tables beside published ones, figures, tests and floors on one page."""
