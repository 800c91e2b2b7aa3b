"""The service over HTTP: `create_app` makes the FastAPI application of `/v1`, health, metrics.

In: a `ServiceConfig`. Out: an ASGI application. It accepts, remembers and tells; what a log means only `pipeline`
knows, in processes of their own. Needs the extra `service`.
"""
