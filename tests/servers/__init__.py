"""Real servers on this machine, for tests and for trying things by hand: `python -m servers kafka|rest|s3|cluster`.

Each listens on 127.0.0.1 only, keeps its files in a folder that it is given, and is stopped by leaving its `with`.
"""
