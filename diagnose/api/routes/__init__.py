"""The routes of `/v1`, one module for each kind of resource.

In: requests. Out: what `service` and `store` say, as `schemas` have it. No route knows what a log means.
"""
