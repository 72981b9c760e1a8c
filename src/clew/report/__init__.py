"""Reports: a typed document with figures and tables, written as HTML and Markdown."""
