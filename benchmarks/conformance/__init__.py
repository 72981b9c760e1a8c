"""The laws of `clew check`, tried on the memories of other libraries: `make conformance`."""
