# Calls functions of many kinds, tells which they are, and spins. `python.py MODE`: spin, thread, hash.
import functools
import hashlib
import sys
import threading

DATA = bytes(1 << 20)


def name_of(frame):
    code = frame.f_code
    return getattr(code, "co_qualname", code.co_name)


def report():
    frame = sys._getframe(1)
    lines = ["version %d.%d" % sys.version_info[:2], "thread %d" % threading.get_ident()]
    while frame is not None:
        lines.append("frame %s:%d:%s" % (frame.f_code.co_filename, frame.f_lineno, name_of(frame)))
        frame = frame.f_back
    sys.stdout.buffer.write(("\n".join(lines) + "\nend\n").encode())
    sys.stdout.flush()


def busy():
    # Without the interpreter's lock, for nearly all of the time.
    while sys.argv[1] == "hash": hashlib.sha256(DATA)
    while True: pass


def leaf(value):
    report(); busy()


class Größe:
    def __init__(self, value):
        self.value = functools.reduce(self.add, [value, 1])

    def add(self, left, right):
        return sorted([left + right], key=lambda number: leaf(number))


def generator(count):
    for number in range(count):
        yield Größe(number)


def nested(depth):
    if depth > 0:
        return nested(depth - 1)
    return list(
        generator(1)
    )


if sys.argv[1] == "thread":
    thread = threading.Thread(target=nested, args=(40,))
    thread.start()
    thread.join()
else:
    nested(5)
