"""Curves in a small PNG, without a library to install: used by tools/bench scaling."""
import struct
import zlib

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 20, 40
COLOURS = ((0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167), (213, 94, 0))
BLACK, GREY = (0, 0, 0), (200, 200, 200)
# Rows of three bits, from the top.
GLYPHS = {"0": "755557", "1": "262227", "2": "717447", "3": "717117", "4": "555711", "5": "747117",
          "6": "747557", "7": "711222", "8": "757757", "9": "757117", ".": "000002", " ": "000000",
          "h": "446555", "o": "007557", "s": "034216", "t": "272223", "e": "007747", "p": "007574",
          "l": "222223"}


class Picture:
    def __init__(self):
        self.pixels = [bytearray(b"\xff" * 3 * WIDTH) for _ in range(HEIGHT)]

    def dot(self, x, y, colour):
        if 0 <= x < WIDTH and 0 <= y < HEIGHT:
            self.pixels[y][3 * x:3 * x + 3] = bytes(colour)

    def line(self, x0, y0, x1, y1, colour):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(steps + 1):
            x, y = x0 + (x1 - x0) * step // steps, y0 + (y1 - y0) * step // steps
            self.dot(x, y, colour)
            self.dot(x, y + 1, colour)

    def text(self, x, y, words, colour=BLACK, scale=2):
        for place, letter in enumerate(words):
            for row, bits in enumerate(GLYPHS[letter]):
                for column in range(3):
                    if int(bits) >> (2 - column) & 1:
                        for i in range(scale * scale):
                            self.dot(x + (4 * place + column) * scale + i % scale,
                                     y + row * scale + i // scale, colour)

    def png(self):
        def chunk(name, data):
            return (struct.pack(">I", len(data)) + name + data
                    + struct.pack(">I", zlib.crc32(name + data)))
        rows = b"".join(b"\0" + bytes(row) for row in self.pixels)
        header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
        return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9))
                + chunk(b"IEND", b""))


def curves(named):
    """PNG of losses by step: {number of hosts: losses}."""
    picture = Picture()
    longest = max(len(losses) for losses in named.values())
    highest = max(max(losses) for losses in named.values())

    def x(step):
        return LEFT + step * (WIDTH - LEFT - RIGHT) // max(longest - 1, 1)

    def y(loss):
        return HEIGHT - BOTTOM - round(loss / highest * (HEIGHT - TOP - BOTTOM))

    for part in range(5):
        value = highest * part / 4
        picture.line(LEFT, y(value), WIDTH - RIGHT, y(value), GREY if part else BLACK)
        picture.text(8, y(value) - 5, f"{value:.2f}")
        step = (longest - 1) * part // 4
        picture.text(x(step) - 8, HEIGHT - BOTTOM + 8, str(step + 1))
    picture.text(LEFT + (WIDTH - LEFT - RIGHT) // 2, HEIGHT - 18, "step")
    for place, (hosts, losses) in enumerate(named.items()):
        colour = COLOURS[place % len(COLOURS)]
        for step in range(len(losses) - 1):
            picture.line(x(step), y(losses[step]), x(step + 1), y(losses[step + 1]), colour)
        picture.text(WIDTH - RIGHT - 90, TOP + 16 * place, f"{hosts} host{'s' if hosts != 1 else ''}", colour)
    return picture.png()
