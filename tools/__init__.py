"""Command-line tools of the repository; each is run as `python tools/NAME.py` and prints its own help with `--help`."""
