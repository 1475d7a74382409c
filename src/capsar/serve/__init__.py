"""HTTP service and demo page (extra `serve`).

A request passes `middleware` (ids, log, metrics, API keys, limits), `app` (routes), `schemas`
(validation) and `batcher` (queue and inference threads).
"""
