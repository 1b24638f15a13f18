"""Typed loops over packed memory, compiled with mypyc. `rml.native` calls them; nothing else does."""
