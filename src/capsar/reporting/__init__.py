"""A scored corpus -> a page that people read, or its figures as JSON or CSV.

```
scored.py     the Parquet files of `capsar score`, and DuckDB on them
calendar.py   dates -> periods
names.py      an aspect as it is written -> the form that names are compared in
merging.py    names of one aspect -> one aspect, and never names of two
counting.py   mentions -> tallies by aspect, product and period
tally.py      what a share and its interval need to know of mentions
shares.py     tallies -> shares with intervals, corrected for the model's confusion
contrasts.py  do two groups differ? many questions, few false alarms
sampling.py   sentences to show
content.py    all of it together
charts.py  page.py  tables.py   how it is shown
```
"""
