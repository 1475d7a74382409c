"""Score a corpus of any size: fragments in, one Parquet file for each out, exactly once.

```
plan.py      input files -> fragments, each with the name of its output
readers.py   a fragment -> rows
scorer.py    rows -> answers; one bad row never costs another
worker.py    a fragment -> its output file, visible in one step
local.py     processes of this machine      } who calls the worker; neither can
on_ray.py    actors of a Ray cluster        } lose or double a fragment
run.py       all of it together
```
"""
