"""Which sockets a sandbox's processes can make: a seccomp filter that children of init get before exec.

Stdlib only. It stands on top of the container engine's own filter, and all that a process starts inherits it.
"""

import ctypes
import errno
import socket
import struct

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
prctl = ctypes.CDLL(None, use_errno=True).prctl

# What a sandbox without a network confines. Other kinds of sockets are not made at all: AF_VSOCK reaches the
# hypervisor from any network namespace.
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
# By AUDIT_ARCH_*: the calls whose first argument is a family, and the calls that make sockets unseen
# (io_uring_setup, and socketcall, whose arguments lie in memory). From the kernel's tables of system calls.
CALLS = {
    0xC000003E: ((41, 53), (425,)),  # x86-64, and x32 with the bit below
    0x40000003: ((359, 360), (425, 102)),  # i386
    0xC00000B7: ((198, 199), (425,)),  # arm64
    0x40000028: ((281, 288), (425, 102)),  # arm
}
X32_BIT = 0x40000000


class Filter(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def make_filter():
    """`struct sock_filter`s, whose jumps count the steps to skip."""
    load, equal, mask, end = 0x20, 0x15, 0x54, 0x06
    number, arch, family = 0, 4, 16  # offsets in struct seccomp_data; a family is the argument's low half
    allow, refuse = 0x7FFF0000, 0x00050000  # refuse: and the errno

    def step(code, k, then=0, otherwise=0):
        return struct.pack("=HBBI", code, then, otherwise, k)

    program = b""
    for audit_arch, ((make, make_pair), unseen) in CALLS.items():
        steps = [step(load, number), step(mask, 0xFFFFFFFF ^ (X32_BIT if audit_arch == 0xC000003E else 0))]
        for call in unseen:
            steps += [step(equal, call, 0, 1), step(end, refuse | errno.ENOSYS)]
        steps += [step(equal, make, 2), step(equal, make_pair, 1), step(end, allow), step(load, family)]
        for known in FAMILIES:
            steps += [step(equal, known, 0, 1), step(end, allow)]
        steps.append(step(end, refuse | errno.EAFNOSUPPORT))
        program += step(load, arch) + step(equal, audit_arch, 0, len(steps)) + b"".join(steps)
    program += step(end, refuse | errno.ENOSYS)
    return Filter(len(program) // 8, program)


FILTER = make_filter()


def confine():
    """From now on, for this process and all that it starts. Raises OSError where it cannot be set."""
    if prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(FILTER), 0, 0):
        raise OSError(ctypes.get_errno(), "no filter for sockets")
