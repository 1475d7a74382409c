"""Bulk scoring: read files of any number and size, write one Parquet file per shard.

```
job.py              options, and the identity of a job
filesystem.py       local and remote files
shards.py           ranges of rows in input files
csv_scan.py         record boundaries in CSV files
row_validation.py   rows, and the checks before inference
readers.py          shard -> rows
planning.py         input files -> shards
output.py           shard output files, progress, summary
manifest.py         the job manifest in the output folder
processes.py        worker processes
scorer.py           rows -> results
worker.py           shard -> output file
executors.py        local and Ray executors, retry policy
run.py              the whole job
```
"""
