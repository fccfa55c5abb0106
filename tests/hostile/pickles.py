"""Malicious pickles under the name of weights: calls that run programs, as published attacks write them, and bombs.

Every pickle is raw opcodes, so that none is run by making it. `FILES` maps a name to the bytes of a file.
"""

import io
import pickle
import zipfile
from typing import Any

PROTO, STOP = b"\x80\x02", b"."
MARK = "ran"  # a file that would be made in the current directory if one of them ran


def value(x: Any) -> bytes:
    """The opcodes that push a plain value."""
    return pickle.dumps(x, 2)[2:-1]


def named(module: str, name: str) -> bytes:
    """The opcode that asks for a thing by name."""
    return f"c{module}\n{name}\n".encode()


def call(module: str, name: str, *args: Any) -> bytes:
    """A thing, called."""
    return named(module, name) + value(args) + b"R"


def entry(content: bytes) -> bytes:
    """A dictionary with that as its only value, as weights are."""
    return PROTO + b"}" + value("weight") + content + b"s" + STOP


def archive(content: bytes, *, method: int = zipfile.ZIP_STORED, **parts: bytes) -> bytes:
    """The same in a zip archive, as torch writes it, with storages by number."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        file.writestr("archive/data.pkl", content)
        file.writestr("archive/version", b"3\n")
        file.writestr("archive/byteorder", b"little")
        for name, part in parts.items():
            file.writestr(f"archive/data/{name.removeprefix('s')}", part)
    return out.getvalue()


def legacy(content: bytes) -> bytes:
    """The same as torch wrote it before 1.6: a magic number, a version, a system, then the weights and their keys."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    return b"".join(pickle.dumps(x, 2) for x in (0x1950A86A20F9469CFC6C, 1001, system)) + content + pickle.dumps([], 2)


def tensor(size: Any, stride: Any, *, numel: int = 4, offset: int = 0, key: str = "0") -> bytes:
    """A tensor over storage `key`, which says it has `numel` numbers."""
    kept = b"(" + value("storage") + named("torch", "FloatStorage") + value(key) + value("cpu") + value(numel) + b"tQ"
    order = named("collections", "OrderedDict") + b")R"
    body = kept + value(offset) + value(size) + value(stride) + value(False) + order
    return named("torch._utils", "_rebuild_tensor_v2") + b"(" + body + b"tR"


CALLS: dict[str, bytes] = {
    "os.system": call("os", "system", f"touch {MARK}"),
    "posix.system": call("posix", "system", f"touch {MARK}"),
    "nt.system": call("nt", "system", f"echo > {MARK}"),
    "os.popen": call("os", "popen", f"touch {MARK}"),
    "os.execv": call("os", "execv", "/bin/touch", ["touch", MARK]),
    "os.mkdir": call("os", "mkdir", MARK),
    "subprocess.Popen": call("subprocess", "Popen", ["touch", MARK]),
    "subprocess.check_output": call("subprocess", "check_output", ["touch", MARK]),
    "builtins.eval": call("builtins", "eval", f"open('{MARK}', 'w')"),
    "builtins.exec": call("builtins", "exec", f"open('{MARK}', 'w')"),
    "__builtin__.eval": call("__builtin__", "eval", f"open('{MARK}', 'w')"),
    "builtins.open": call("builtins", "open", MARK, "w"),
    "builtins.__import__": call("builtins", "__import__", "antigravity"),
    "builtins.getattr": call("builtins", "getattr", "x", "__class__"),
    "builtins.compile": call("builtins", "compile", "x", MARK, "eval"),
    "runpy.run_path": call("runpy", "run_path", "evil.py"),
    "runpy._run_code": call("runpy", "_run_code", f"open('{MARK}', 'w')", {}),
    "importlib.import_module": call("importlib", "import_module", "evil"),
    "pty.spawn": call("pty", "spawn", ["touch", MARK]),
    "socket.create_connection": call("socket", "create_connection", ("127.0.0.1", 9)),
    "urllib.request.urlopen": call("urllib.request", "urlopen", "http://127.0.0.1:9/"),
    "webbrowser.open": call("webbrowser", "open", "http://127.0.0.1:9/"),
    "shutil.copy": call("shutil", "copy", "/etc/hostname", MARK),
    "timeit.timeit": call("timeit", "timeit", f"open('{MARK}', 'w')"),
    "cProfile.run": call("cProfile", "run", f"open('{MARK}', 'w')"),
    "pdb.run": call("pdb", "run", "x"),
    "code.interact": call("code", "interact"),
    "ctypes.CDLL": call("ctypes", "CDLL", "libc.so.6"),
    "operator.attrgetter": call("operator", "attrgetter", "system"),
    "functools.partial": named("functools", "partial") + b"(" + named("os", "system") + value(f"touch {MARK}") + b"tR",
    "types.FunctionType": named("types", "FunctionType"),
    "pickle.loads": call("pickle", "loads", PROTO + call("os", "system", f"touch {MARK}") + STOP),
    "marshal.loads": call("marshal", "loads", b"c"),
    "torch.load": call("torch", "load", "pytorch_model.bin"),
    "torch.hub.load": call("torch.hub", "load", "someone/else", "evil"),
    "torch.jit.load": call("torch.jit", "load", MARK),
    "torch.utils.cpp_extension.load_inline": call("torch.utils.cpp_extension", "load_inline", MARK, "int x;"),
    "numpy.load": call("numpy", "load", "x.npy", None, True),
    "numpy.fromfile": call("numpy", "fromfile", "/etc/passwd"),
    "a name with dots": named("os", "path.os.system") + value((f"touch {MARK}",)) + b"R",
    "a name on the stack": value("os") + value("system") + b"\x93" + value((f"touch {MARK}",)) + b"R",
    "an instance": b"(" + value(f"touch {MARK}") + b"ios\nsystem\n",
    "an object": b"(" + named("os", "system") + value(f"touch {MARK}") + b"o",
    "a new object": named("subprocess", "Popen") + value((["touch", MARK],)) + b"\x81",
    "an extension": b"\x82\x01",
    "an argument of a tensor": named("torch._utils", "_rebuild_tensor_v2")
    + b"("
    + call("os", "system", f"touch {MARK}")
    + b"tR",
    "a call in a call in a call": b"".join(named("builtins", "eval") + b"(" for _ in range(50))
    + value("1")
    + b"tR" * 50,
    "a state": named("collections", "OrderedDict") + b")R" + call("os", "system", f"touch {MARK}") + b"b",
    "a key": b"}" + call("os", "system", f"touch {MARK}") + value(1) + b"s",
}
BOMBS: dict[str, bytes] = {
    "archive: a storage that is not there": archive(entry(tensor((4,), (1,)))),
    "archive: a storage smaller than it says": archive(entry(tensor((4000,), (1,), numel=4000)), s0=bytes(16)),
    "archive: a shape beyond its storage": archive(entry(tensor((4000,), (1,))), s0=bytes(16)),
    "archive: a shape of 10**13 with stride 0": archive(entry(tensor((10**13,), (0,))), s0=bytes(16)),
    "archive: a shape of 2**62 twice": archive(entry(tensor((2**62, 2**62), (0, 0))), s0=bytes(16)),
    "archive: a negative shape": archive(entry(tensor((-4,), (1,))), s0=bytes(16)),
    "archive: a negative stride": archive(entry(tensor((4,), (-1,))), s0=bytes(16)),
    "archive: a negative offset": archive(entry(tensor((1,), (1,), offset=-64)), s0=bytes(16)),
    "archive: an offset beyond": archive(entry(tensor((4,), (1,), offset=10**9)), s0=bytes(16)),
    "archive: a storage above the archive": archive(entry(tensor((4,), (1,), key="../../0")), s0=bytes(16)),
    "archive: a bomb": archive(entry(tensor((4,), (1,))), method=zipfile.ZIP_DEFLATED, s0=bytes(50 << 20)),
    "archive: a packed pickle": archive(entry(value("x" * (20 << 20))), method=zipfile.ZIP_DEFLATED),
    "archive: cut": archive(entry(tensor((4,), (1,))), s0=bytes(16))[:-40],
    "archive: nothing in it": archive(PROTO + b"}" + STOP),
    "archive: a list": archive(PROTO + b"]" + STOP),
    "archive: a pickle that ends early": archive(PROTO + b"}"),
    "archive: a name that is a number": archive(
        PROTO + b"}" + value(7) + tensor((4,), (1,)) + b"s" + STOP, s0=bytes(16)
    ),
    "archive: a name with an escape": archive(
        PROTO + b"}" + value("\x1b[2J") + tensor((4,), (1,)) + b"s" + STOP, s0=bytes(16)
    ),
    "pickle: lists 200,000 deep": PROTO + b"]" * 200_000 + b"a" * 199_999 + STOP,
    "pickle: tuples 200,000 deep": PROTO + b")" + b"\x85" * 200_000 + STOP,
    "pickle: a number of 2**31 bytes": PROTO + b"\x8b\xff\xff\xff\x7f" + STOP,
    "pickle: a text of 2**31 bytes": PROTO + b"X\xff\xff\xff\x7fabc" + STOP,
    "pickle: a frame of 2**63 bytes": b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f" + b"}" + STOP,
    "pickle: a memo of 2**32": PROTO + b"}r\xff\xff\xff\xff" + STOP,
    "pickle: marks": PROTO + b"(" * 1_000_000 + STOP,
    "pickle: laughs": PROTO + b"]q\x00" + b"".join(b"](h%cea" % i + b"q%c" % (i + 1) for i in range(3)) + STOP,
    "pickle: a persistent id": PROTO + b"Pevil\n" + STOP,
    "pickle: a second stream": PROTO + b"}" + STOP + PROTO + CALLS["os.system"] + STOP,
    "pickle: nothing": PROTO + b"N" + STOP,
    "pickle: an unknown opcode": PROTO + b"\xff" + STOP,
    "pickle: cut": PROTO,
    "pickle: protocol 0 in disguise": b"\x80\x02cos\nsystem\n(S'touch ran'\ntR.",
}
FILES: dict[str, bytes] = {
    **{f"archive: {name}": archive(entry(content)) for name, content in CALLS.items()},
    **{f"before 1.6: {name}": legacy(entry(content)) for name, content in list(CALLS.items())[::4]},
    **{f"bare: {name}": PROTO + content + STOP for name, content in list(CALLS.items())[::5]},
    **BOMBS,
}
