"""`sib sweep`: execute one notebook over a grid of parameters, each point by papermill on a worker process of Dask.

results/local/sweeps/<name>/
    <point>.ipynb         the executed notebook, with its result in the metadata; without it the point has yet to run
    <point>.log           what the notebook printed
    figures/<point>/      the figures it drew
    table.csv, .parquet   a row for each point, made from the files above
    .running/             locks, and notebooks that are being executed
"""
