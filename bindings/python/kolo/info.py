"""``python -m kolo.info`` is ``kolo-info``, with the same options."""
from kolo import _commands

if __name__ == "__main__":
    _commands.info()
