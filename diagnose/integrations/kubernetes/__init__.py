"""Kubernetes: failed pods of training jobs are seen, read at once, diagnosed, and told.

`api` speaks to the API server, `workloads` says what a pod belongs to and how it failed, `gather` reads logs, events
and nodes, `watcher` puts them together, `verdicts` asks a service or this machine. Needs `httpx` (the extra `service`).
"""
