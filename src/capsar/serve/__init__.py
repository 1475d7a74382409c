"""The HTTP service and its page (extra `serve`): requests -> one `Analyzer` -> answers.

A request passes, from outside in: `protocol` (slow or oversized clients), `envelope` (headers, log,
metrics), `admission` (keys, size, room in the queue), `app` (what is asked), `batcher` (the work).
"""
