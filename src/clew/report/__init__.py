"""Documents with figures and tables, as HTML and Markdown."""
