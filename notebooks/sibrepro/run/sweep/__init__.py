"""Parameter sweeps: one notebook, many points, each executed by papermill in processes of its own.

    results/sweeps/<name>/
        <point>.ipynb         the notebook as executed at this point
        <point>.json          its parameters, metrics and error; written last, so a point without it has to run
        <point>.log           what it printed while it ran
        figures/<point>/      the figures it drew
        table.csv, .parquet   one row a point, made from the files above
        .running/             locks, and what is being executed now

Run records stay in `results/runs/`, shared with everything else: a point that was stopped half-way finds there what it
had computed. `grid` says which points there are, `point` what one is, `attempt` and `child` execute one, `local` and
`cluster` many of them, `progress` shows how far they are, `table` and `plot` gather and draw what came of them.
"""
