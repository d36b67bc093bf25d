#!/usr/bin/env python3
"""Print the stored lines of a portable session file (docs/portable.md).

    python3 docs/unpack_portable.py demo.agentcell | python3 docs/verify_chain.py

Every chunk is checked, and every blob written to the directory that a second
argument names. It shares no code with agentcell: Python's standard library, and
the command zstd. Exit code 1 if the file is not whole.
"""

import hashlib
import os
import struct
import subprocess
import sys

MAGIC = b"agentcell session 1\n"


def chunks(f):
    """Yields the data of a file's chunks."""
    if f.read(len(MAGIC)) != MAGIC:
        sys.exit("not a portable session, version 1")
    before = hashlib.sha256(MAGIC).digest()
    while True:
        header = f.read(68)
        if len(header) < 68:
            sys.exit("cut short")
        (length,) = struct.unpack(">I", header[:4])
        prev, digest, data = header[4:36], header[36:], f.read(length)
        if len(data) < length:
            sys.exit("cut short")
        if hashlib.sha256(header[:4] + prev + data).digest() != digest:
            sys.exit("edited")
        if prev != before:
            sys.exit("mixed")
        before = digest
        if length == 0:
            if f.read(1):
                sys.exit("bytes behind its end")
            return
        yield data


def pieces(content):
    """Yields kind and body of what is in a file."""
    at = 0
    while at < len(content):
        kind, length = struct.unpack(">cI", content[at : at + 5])
        yield kind, content[at + 5 : at + 5 + length]
        at += 5 + length


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    with open(sys.argv[1], "rb") as f:
        stream = b"".join(chunks(f))
    content = subprocess.run(["zstd", "-dcq"], input=stream, stdout=subprocess.PIPE, check=True).stdout
    for kind, body in pieces(content):
        if kind == b"r":
            sys.stdout.buffer.write(body[8:] + b"\n")
        elif kind == b"b" and len(sys.argv) == 3:
            os.makedirs(sys.argv[2], exist_ok=True)
            with open(os.path.join(sys.argv[2], hashlib.sha256(body).hexdigest()), "wb") as f:
                f.write(body)


if __name__ == "__main__":
    main()
