"""Names of calls that were given none: the n-th such call of a rank meets the n-th of the others."""
from collections import Counter

_calls: Counter[tuple[str, int]] = Counter()


def name_of(kind: str, name: str | None, process_set: int) -> str:
    """The given name, or the next one of this kind of call in this process set."""
    if name:
        return name
    _calls[kind, process_set] += 1
    return f"{kind}.noname.{_calls[kind, process_set]}"


def forget_names(process_set: int | None = None) -> None:
    """Counts from the start again, in a new world or in one process set: on all of its ranks."""
    for call in [call for call in _calls if process_set in (None, call[1])]:
        del _calls[call]
