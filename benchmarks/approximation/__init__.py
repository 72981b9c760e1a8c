"""What else was tried in place of AReLiT's waves; see `__main__.py`."""
