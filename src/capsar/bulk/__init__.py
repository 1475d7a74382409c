"""Bulk scoring: read files of any number and size, write one Parquet file per shard.

```
job.py          options, and the identity of a job
filesystem.py   local and remote files
rows.py         files -> rows, with the checks before inference
planning.py     input files -> shards
manifest.py     what the output folder says about its job
scoring.py      rows -> results
output.py       one Parquet file per shard
worker.py       one shard after another
processes.py    Python modules that run as worker processes
executors.py    local and Ray workers, retry policy
run.py          the whole job, its progress and its summary
```
"""
