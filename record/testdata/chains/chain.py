"""Calls the driver from Python in many ways, and writes the stacks of its calls.

    chain.py CHAINS.SO EXPECTED.JSONL [PASSES]

prints "ready", waits for a byte on stdin, makes its calls PASSES times, prints "done CALLS" and waits for the end of stdin.
Each call site allocates its own number of bytes. EXPECTED has a line for each call site: its name, its bytes and its
frames, innermost first. In the first pass, sys._getframe reads the frames during the call that leads to the driver. Later
passes add QUIET to the bytes and read no frames, so that reading frames cannot change the recorded stacks.
"""
import asyncio
import contextlib
import ctypes
import functools
import itertools
import json
import os
import sys
import threading
import weakref

QUIET = 1 << 20
DEEP, TOO_DEEP = 100, 900  # the unwinder's limit is 500 frames
SHORT_LIVED = {"exec of a string", "import", "imported"}  # call sites in code that is freed soon after

with_gil = ctypes.PyDLL(sys.argv[1])
without_gil = ctypes.CDLL(sys.argv[1])
chain_alloc = with_gil.chain_alloc
chain_alloc.argtypes, chain_alloc.restype = [ctypes.py_object, ctypes.c_uint64], None
chain_call_object = with_gil.chain_call_object
chain_call_object.argtypes, chain_call_object.restype = [ctypes.py_object], None
driver = ctypes.CDLL("libcuda.so.1")
CALLBACK = ctypes.CFUNCTYPE(None)

expected = {}  # bytes -> expected stack
sizes = {}  # name of the call site -> bytes
names = {}
record = None  # write_down in the first pass, then None
inside = threading.local()  # calls: native functions that the thread is in, as (frame of the caller, name)


def write_down(size, caller=None):
    frame, frames = caller or sys._getframe(1), [] if caller else [{"func": "chain_alloc"}]
    native = {id(caller): name for caller, name in getattr(inside, "calls", [])}
    while frame is not None:
        if id(frame) in native:
            frames.append({"func": native[id(frame)]})
        code = frame.f_code
        frames.append({"func": getattr(code, "co_qualname", code.co_name), "file": code.co_filename, "line": frame.f_lineno})
        frame = frame.f_back
    if names[size] == "native thread":
        frames.append({"func": "chain_thread_main"})
    truncated = len(frames) > TOO_DEEP
    expected[size] = {"name": names[size], "bytes": size, "python": True, "truncated": truncated,
                      "direct": caller is not None, "short_lived": names[size] in SHORT_LIVED, "frames": frames}


@contextlib.contextmanager
def through(name):
    """Notes that the caller's frame calls a native function of chains.so."""
    if not hasattr(inside, "calls"):
        inside.calls = []
    inside.calls.append((sys._getframe(2), name))
    yield
    inside.calls.pop()


def at(name):
    """Returns the number of bytes of a call site."""
    if record is not None:
        assert name not in sizes, name
        size = sizes[name] = 4096 + len(sizes)
        names[size] = name
    return sizes[name] + (0 if record is not None else QUIET)


# Plain functions.
def plain_a():
    plain_b(1)


def plain_b(x):
    y = x + 1
    plain_c(y, z=3)


def plain_c(y, *, z):
    for _ in range(2):
        pass
    chain_alloc(record, at("plain"))


# Calls over many lines.
def many_lines():
    return middle(
        1,
        last(
            2,
            [3, 4],
        ),
        key=lambda: (
            chain_alloc(
                record,
                at("lambda over many lines"),
            )
        ),
    )


def middle(a, b, key):
    (
        key
        ()
    )
    chain_alloc(
        record,
        at(
            "many lines"
        ),
    )


def last(a, b):
    chain_alloc(record, at("an argument on a later line"))


# Methods of all kinds.
class Base:
    def method(self, name):
        chain_alloc(record, at(name))

    @classmethod
    def of_class(cls):
        cls().method("class method")

    @staticmethod
    def static():
        Derived().method("super")

    @property
    def attribute(self):
        chain_alloc(record, at("property"))

    def __getattr__(self, name):
        chain_alloc(record, at("__getattr__"))

    def __lt__(self, other):
        chain_alloc(record, at("__lt__"))
        return True

    def __enter__(self):
        chain_alloc(record, at("__enter__"))

    def __exit__(self, *what):
        chain_alloc(record, at("__exit__"))


class Derived(Base):
    def method(self, name):
        super().method(name)


def methods():
    Base.of_class()
    Base.static()
    Base().attribute
    Base().nothing
    Base() < Base()
    with Base():
        pass

    class Local(Base):
        def inner(self):
            def innermost():
                self.method("local class")
            innermost()
    Local().inner()


# Modules that are called as in PyTorch: __call__ goes through a slot in C.
class Module:
    def __call__(self, *args, **kwargs):
        return self._wrapped_call_impl(*args, **kwargs)

    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        return self.forward(*args, **kwargs)


class Leaf(Module):
    def __init__(self, name):
        self.name = name

    def forward(self, x):
        chain_alloc(record, at(self.name))
        return x


class Stack(Module):
    def __init__(self, *layers):
        self.layers = layers

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def modules():
    Stack(Stack(Leaf("module 1"), Leaf("module 2")), Leaf("module 3"))(1)
    functools.reduce(lambda f, g: Stack(f, g), [Leaf("module 4"), Leaf("module 5"), Leaf("module 6")])(2)


# Recursion.
def recursion(depth, name):
    if depth == 1:
        chain_alloc(record, at(name))
        return 1
    return 1 + recursion(depth - 1, name)


def even(depth):
    return odd(depth - 1) if depth else chain_alloc(record, at("mutual recursion"))


def odd(depth):
    return even(depth - 1)


def through_sorted(depth):
    def key(_):
        through_sorted(depth - 1)
        return 0
    if depth:
        sorted([1], key=key)
    else:
        chain_alloc(record, at("sorted in sorted"))


# Generators, comprehensions, coroutines.
def numbers(name):
    yield 1
    chain_alloc(record, at(name))
    yield 2


def outer(name):
    yield 0
    yield from numbers(name)


def generators():
    for _ in numbers("generator"):
        pass
    list(outer("yield from"))
    sum(x for x in numbers("generator expression"))
    [chain_alloc(record, at(f"list comprehension {i}")) for i in range(2)]
    {i: chain_alloc(record, at("dict comprehension")) for i in range(1)}
    [[chain_alloc(record, at(f"nested comprehension {i} {j}"))
      for i in range(2)]
     for j in range(2)]
    unfinished = closing()
    next(unfinished)
    unfinished.close()
    asyncio.run(coroutine(3))


def closing():
    try:
        yield
    finally:
        chain_alloc(record, at("a generator that is closed"))


async def coroutine(depth):
    if depth:
        await coroutine(depth - 1)
        return
    await asyncio.sleep(0)
    chain_alloc(record, at("coroutine"))


# Decorators.
def decorator(text):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)
        return wrapper
    return decorate


@decorator("one")
@functools.lru_cache(maxsize=None)
@decorator(
    "two")
def decorated(i):
    chain_alloc(record, at("decorated"))


def decorators():
    decorated.__wrapped__.cache_clear()
    decorated(1)


# Exceptions.
def thrower(depth):
    if depth == 0:
        raise KeyError("thrown")
    try:
        thrower(depth - 1)
    finally:
        if depth == 2:
            chain_alloc(record, at("finally"))


def exceptions():
    try:
        thrower(4)
    except KeyError:
        chain_alloc(record, at("except"))
        try:
            {}["missing"]
        except KeyError as error:
            raise_again(error)
    chain_alloc(record, at("after except"))
    with contextlib.suppress(ValueError):
        int("x" if in_argument() else "y")


def raise_again(error):
    try:
        raise RuntimeError from error
    except RuntimeError:
        recursion(5, "in an except in an except")


def in_argument():
    chain_alloc(record, at("in an argument"))
    return True


# Driver functions that are called directly with ctypes.
def direct():
    pointer = ctypes.c_uint64()
    driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(noted(at("direct"))))
    driver.cuMemFree_v2(pointer)


def noted(size):
    if record is not None:
        write_down(size, sys._getframe(1))
    return size


# Python calls C, which calls Python.
COMPILED = compile("def executed():\n  pass\n  chain_alloc(record, at('exec'))\n\nexecuted()\n", "compiled.py", "exec")


def c_between():
    sorted([2, 1], key=lambda x: x == 2 and chain_alloc(record, at("sorted")) or x)
    functools.reduce(reducer, [1, 2])
    list(map(mapped, [1]))
    max([1], key=functools.partial(partial, "partial"))
    exec(COMPILED, globals())
    exec("\n\nchain_alloc(record, at('exec of a string'))")
    "".join(joined())
    with through("chain_call_back"):
        without_gil.chain_call_back(CALLBACK(called_back))
    with through("chain_call_object"):
        chain_call_object(called_object)
    with through("chain_call_object"):
        chain_call_object(functools.partial(recursion, DEEP // 2, "recursion in an object"))


def reducer(a, b):
    chain_alloc(record, at("reduce"))
    return a


def mapped(x):
    chain_alloc(record, at("map"))


def partial(name, x):
    chain_alloc(record, at(name))
    return x


def joined():
    chain_alloc(record, at("join"))
    yield "x"


def called_back():
    with through("chain_call_back"):
        without_gil.chain_call_back(CALLBACK(called_back_again))


def called_back_again():
    with through("chain_call_object"):
        chain_call_object(in_callbacks)


def in_callbacks():
    chain_alloc(record, at("callbacks in callbacks"))


def called_object():
    chain_alloc(record, at("called object"))


# Destructors.
class Dying:
    def __del__(self):
        chain_alloc(record, at("__del__"))


def destructors():
    dying = Dying()
    del dying

    class Thing:
        pass
    thing = Thing()
    reference = weakref.ref(thing, lambda _: chain_alloc(record, at("weak reference")))
    thing = None
    return reference


# An import, and code that runs in the import.
def imports():
    sys.modules.pop("late_module", None)
    import late_module
    late_module.use()


# Threads.
def threaded(name):
    with_gil.chains_thread_init()
    plain_in_thread(name)


def plain_in_thread(name):
    recursion(10, name)


def threads():
    started = [threading.Thread(target=threaded, args=(f"thread {i}",)) for i in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    without_gil.chain_native_thread(CALLBACK(in_native_thread))


def in_native_thread():
    chain_alloc(record, at("native thread"))


def one_pass():
    plain_a()
    many_lines()
    methods()
    modules()
    recursion(DEEP, "recursion")
    recursion(TOO_DEEP, "too deep")
    even(40)
    through_sorted(8)
    generators()
    decorators()
    exceptions()
    direct()
    c_between()
    destructors()
    imports()
    threads()


def main():
    global record
    passes = int(sys.argv[3]) if len(sys.argv) > 3 else 40
    sys.dont_write_bytecode = True
    sys.setrecursionlimit(2 * TOO_DEEP)
    late = os.path.join(os.path.dirname(os.path.abspath(sys.argv[2])), "late_module.py")
    with open(late, "w") as file:
        file.write("import __main__ as main\n\n\ndef use():\n    main.chain_alloc(main.record, main.at('imported'))\n\n\n"
                   "main.chain_alloc(main.record, main.at('import'))\n")
    sys.path.insert(0, os.path.dirname(late))
    with_gil.chains_init()
    print("ready", os.getpid(), flush=True)
    sys.stdin.read(1)
    for number in range(passes):
        record = write_down if number == 0 else None
        one_pass()
    with open(sys.argv[2], "w") as file:
        for line in expected.values():
            line["times"] = passes
            print(json.dumps(line), file=file)
    print("done", len(expected) * passes * 2, flush=True)
    sys.stdin.read()


main()
