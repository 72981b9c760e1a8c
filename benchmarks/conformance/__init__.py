"""Tests other libraries' memories by the laws of `clew check`: `make conformance`."""
