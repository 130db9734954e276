"""What the options of tools/bench and tools/patterns take; each is refused in a line that quotes it, before
anything is measured."""
import argparse
import pathlib
import re

# iproute2's words: bits a second without a unit, "bps" are bytes a second, "i" is of 1024.
RATE = re.compile(r"(\d+\.?\d*|\.\d+)(?:(?:([kmgt])(i?))?(bit|bps))?", re.IGNORECASE)


def whole(least):
    """A whole number from `least` on."""
    def parsed(text):
        if not re.fullmatch(r"\d+", text, re.ASCII) or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number from {least} on")
        return int(text)
    return parsed


def size(text):
    """Bytes: a number with K, M or G, or none of them."""
    found = re.fullmatch(r"([1-9]\d*)([KMG]?)", text, re.ASCII)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is no size: write 4, 64K or 64M")
    return int(found[1]) << 10 * " KMG".index(found[2] or " ")


def numbers(text):
    """[2, 4] of 2,4."""
    return [whole(1)(number) for number in text.split(",")]


def positive(text):
    """A finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return number


def bytes_per_second(rate):
    """Of a rate as tc takes it; 0 if it takes none."""
    found = RATE.fullmatch(rate)
    if not found:
        return 0
    number, prefix, binary, unit = found.groups()
    factor = (1024 if binary else 1000) ** (" kmgt".index(prefix.lower()) if prefix else 0)
    return float(number) * factor / (1 if (unit or "").lower() == "bps" else 8)


def rate(text):
    """A rate of a link as tc writes it, or none; stays text."""
    if text != "none" and bytes_per_second(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no rate: write 250mbit, 1gbit or none")
    return text


def writable(text):
    """The path of a file that is written later."""
    path = pathlib.Path(text)
    existed = path.exists()
    # Whoever reads a pipe would take an opening for its end.
    if existed and not path.is_file() and not path.is_dir():
        return path
    try:
        path.open("ab").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"'{text}' cannot be written: {error.strerror}") from error
    if not existed:
        path.resolve().unlink()  # not a link that leads there
    return path
