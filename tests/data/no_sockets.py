"""A `sitecustomize.py` that forbids sockets in Python and, through the kernel, in native code."""

SITE = """
import ctypes, errno, platform, socket, struct, sys

LOCAL = {socket.AF_UNIX} if hasattr(socket, "AF_UNIX") else set()

def forbid(event, arguments):
    made = event == "socket.__new__" and arguments[1] not in LOCAL
    if made or event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        raise RuntimeError(f"forbidden: {event}")

sys.addaudithook(forbid)

# A kernel filter applies to native libraries: socket() of any family except AF_UNIX fails
# with EPERM. Instructions: (code, jump if true, jump if false, constant).
number = {"x86_64": 41, "aarch64": 198}.get(platform.machine())
if sys.platform == "linux" and number:
    load, equal, give = 0x20, 0x15, 0x06
    program = [
        (load, 0, 0, 0),  # the call's number
        (equal, 0, 3, number),
        (load, 0, 0, 16),  # its first argument, the family
        (equal, 1, 0, socket.AF_UNIX),
        (give, 0, 0, 0x00050000 | errno.EPERM),
        (give, 0, 0, 0x7FFF0000),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code)
    described = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, described, 0, 0) == 0, ctypes.get_errno()
"""
