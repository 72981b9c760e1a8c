"""Reports of studies: tables beside the published ones, figures, tests and floors on one page."""
