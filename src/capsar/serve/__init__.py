"""HTTP service and demo page (extra `serve`).

A request passes `protocol` (timeouts and size limits of a connection), `middleware` (headers, log,
metrics, API keys, admission), `app` (routes), `schemas` (parsing), `batcher` and `handlers`.
"""
