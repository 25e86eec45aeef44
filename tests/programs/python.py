# Calls functions of many kinds, tells which they are, and spins.
# `python.py MODE`: spin, thread, hash, service, deep, callback, exception, coroutine, fork, greenlet.
import functools
import os
import sys
import threading
import time

MODE = sys.argv[1]
DATA = bytes(1 << 20)
# Others are not in the smallest interpreters.
if MODE == "hash":
    from hashlib import sha256 as SHA256
if MODE == "coroutine":
    import asyncio


def name_of(frame):
    code = frame.f_code
    return getattr(code, "co_qualname", code.co_name)


def report():
    frame = sys._getframe(1)
    lines = ["version %d.%d" % sys.version_info[:2], "process %d" % os.getpid(), "thread %d" % threading.get_ident()]
    lines.append("busy %d" % (busy.__code__.co_firstlineno + {"hash": 2, "service": 3}.get(MODE, 4)))
    while frame is not None:
        lines.append("frame %s:%d:%s" % (frame.f_code.co_filename, frame.f_lineno, name_of(frame)))
        frame = frame.f_back
    sys.stdout.buffer.write(("\n".join(lines) + "\nend\n").encode())
    sys.stdout.flush()


def busy():
    # Without the interpreter's lock, for nearly all of the time.
    while MODE == "hash": SHA256(DATA)
    while MODE == "service": time.sleep(0.05 + sum(range(20000)) * 0)
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


def callback():
    import ctypes

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    numbers = (ctypes.c_int * 2)(2, 1)
    ctypes.CDLL(None).qsort(numbers, 2, ctypes.sizeof(ctypes.c_int), kind(lambda one, other: leaf(one)))


class Context:
    def __enter__(self):
        raise ValueError("expected")

    def __exit__(self, *_):
        pass


def exception():
    try:
        with Context():
            pass
    except ValueError as error:
        try:
            raise KeyError("as well") from error
        finally:
            exec("def made():\n    return [nested(0) for _ in range(1)]\nmade()", globals())


async def inner(depth):
    if depth > 0:
        return await inner(depth - 1)
    await asyncio.sleep(0)
    async for value in values():
        leaf(value)


async def values():
    yield 1


async def coroutine():
    await asyncio.gather(inner(3))


def fork():
    if os.fork() == 0:
        nested(3)
    else:
        os.wait()


def switch():
    import greenlet

    # The second one runs on a piece of the stack that the first one has left.
    first = greenlet.greenlet(lambda: second.switch())
    second = greenlet.greenlet(lambda: nested(3))
    nested_switch(first, 3)


def nested_switch(first, depth):
    return nested_switch(first, depth - 1) if depth > 0 else first.switch()


if MODE == "thread":
    thread = threading.Thread(target=nested, args=(40,))
    thread.start()
    thread.join()
elif MODE == "deep":
    sys.setrecursionlimit(3000)
    nested(900)
elif MODE == "callback":
    callback()
elif MODE == "exception":
    exception()
elif MODE == "coroutine":
    asyncio.get_event_loop_policy().new_event_loop().run_until_complete(coroutine()) if sys.version_info < (3, 10) else asyncio.run(coroutine())
elif MODE == "fork":
    fork()
elif MODE == "greenlet":
    switch()
else:
    nested(5)
