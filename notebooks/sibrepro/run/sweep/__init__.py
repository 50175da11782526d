"""Parameter sweeps: one notebook, many points, each executed by papermill on a worker process of Dask.

results/local/sweeps/<name>/
    <point>.ipynb         the notebook as executed, with its result in the metadata; a point without it has to run
    <point>.log           what it printed while it ran
    figures/<point>/      the figures it drew
    table.csv, .parquet   one row a point, made from the files above
    .running/             locks, and what is being executed now
"""
