"""How a check ends other than well."""


class Failed(Exception):
    """What was seen instead."""


class NotRun(Exception):
    """What is missing."""


class NoTime(NotRun):
    """Not even begun."""
