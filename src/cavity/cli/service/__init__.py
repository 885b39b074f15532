"""The service of `cavity serve`: predictions over HTTP, for programs and for people.

It needs the extra ``cavity[serve]``.
"""

from cavity.cli.service.app import Limits, create_app

__all__ = ["Limits", "create_app"]
