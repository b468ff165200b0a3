"""What the frontier costs, and what its peers cost, measured in one run.

``python -m tests.benchmarks`` from the repository's root measures everything and prints
tables, the last one of all figures that have a target. It takes an hour or more; ``--help``
says how to measure less. The figures are ratios within one run: each measurement has a
process of its own, and all schedulers take turns, several times.

``pip install -e '.[benchmarks]'`` and a ``redis-server`` bring scrapy-redis in; without them
its column is left out.
"""
