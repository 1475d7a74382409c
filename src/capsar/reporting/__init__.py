"""Report on a scored folder: one HTML page, JSON or CSV.

```
run.py           the public function `report`
options.py       what to compare and how much to show
query.py         the Parquet files of `capsar score`, counted with DuckDB
periods.py       dates -> periods
aspect_names.py  spellings of aspect terms -> merged aspects
statistics.py    counts -> shares with intervals, and significance tests
sampling.py      example sentences
model_info.py    metrics and limits of the model that scored
content.py       the report as one JSON object
render.py        the JSON object -> HTML or CSV
```
"""
