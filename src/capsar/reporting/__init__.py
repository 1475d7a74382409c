"""Report on a scored folder: one HTML page, JSON, CSV or Excel.

```
run.py           the public function `report`
options.py       what to compare and how much to show
query.py         the Parquet files of `capsar score`, read with DuckDB
quality.py       empty, duplicate and non-English reviews
languages.py     the language of a review
periods.py       dates -> periods
aspect_names.py  spellings of aspect terms -> merged aspects
themes.py        aspects -> themes
counting.py      mentions of themes and aspects -> counts
phrases.py       opinion phrases -> counts
statistics.py    counts -> shares with intervals, and significance tests
drivers.py       ratings -> effects of themes or aspects
sampling.py      example sentences
model_info.py    metrics and limits of the model that scored
content.py       the report as one JSON object
render.py        the JSON object -> HTML or CSV
workbook.py      the JSON object -> Excel
suggest.py       themes to start from
```
"""
