"""HTTP service and demo page (extra `serve`).

A request passes `middleware` (headers, log, metrics, API keys, limits), `app` (routes), `schemas`
(validation) and `batcher` (queue and inference threads).
"""
