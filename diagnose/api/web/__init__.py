"""The web pages of the service: what was diagnosed, one diagnosis, the overview, candidate rules.

In: requests of a browser. Out: HTML made on the server, without inline script or style; everything is `pages.router`.
"""
