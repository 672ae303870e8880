"""Runs a command to which the kernel refuses io_uring, as containers' default filters do: every call
of it is answered with EPERM.

usage: python without_io_uring.py COMMAND [ARGUMENT ...]
"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
# io_uring_setup, io_uring_enter, io_uring_register: the same numbers on every architecture.
FIRST, LAST = 425, 427
LOAD_WORD, JUMP_IF_GREATER_OR_EQUAL, JUMP_IF_GREATER, RETURN = 0x20, 0x35, 0x25, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM


def forbid_io_uring() -> None:
    """Forbids the calls to this process and to the program that replaces it."""
    instructions = [
        (LOAD_WORD, 0, 0, 0),                           # the number of the call
        (JUMP_IF_GREATER_OR_EQUAL, 0, 2, FIRST),
        (JUMP_IF_GREATER, 1, 0, LAST),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(instructions), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)):
        if libc.prctl(*arguments) != 0:
            sys.exit(f"without_io_uring: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    forbid_io_uring()
    os.execvp(sys.argv[1], sys.argv[1:])
