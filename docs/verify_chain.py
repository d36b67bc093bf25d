#!/usr/bin/env python3
"""Verify the hash chain of an agentcell session, independently of agentcell.

    agentctl export --session S | python3 verify_chain.py [--head H]

Reads exported lines, one record each, from FILE or standard input. Every line
is {"event":{...},"prev_hash":"<64 hex or empty>","seq":"N"}; its SHA-256 is the
prev_hash of the next one. Checked: the first record is seq 1 and has no
prev_hash, seqs have no gap, every link holds, and, with --head, that the chain
contains the record with that hash: without it, a log cut at its end cannot be
told from a shorter one. Exits 0 if the chain holds and 1 if it does not.

Needs nothing but Python 3.
"""

import argparse
import hashlib
import json
import sys


class Broken(Exception):
    """The first thing that is wrong."""


def members_once(pairs):
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a name stands twice")
    return record


def parse(line, number):
    """Give the prev_hash and seq of a record."""
    if number == 1 and line.startswith(b"agentcell session "):
        raise Broken("this is a portable file: unpack_portable.py writes its records")
    try:
        record = json.loads(line.decode("utf-8"), object_pairs_hook=members_once)
    except (ValueError, RecursionError) as error:
        raise Broken(f"line {number}: not a record: {error}") from None
    if not isinstance(record, dict) or set(record) != {"event", "prev_hash", "seq"}:
        raise Broken(f"line {number}: not a record: want event, prev_hash and seq")
    prev, seq = record["prev_hash"], record["seq"]
    if not isinstance(prev, str) or not isinstance(seq, str):
        raise Broken(f"line {number}: not a record: prev_hash and seq are strings")
    return prev, seq


def verify(lines, wanted):
    """Give the number of records, the last one's hash, and wanted's seq."""
    count, head, found = 0, "", None
    for line in lines:
        line = line[:-1] if line.endswith(b"\n") else line
        prev, seq = parse(line, count + 1)
        if seq != str(count + 1):
            raise Broken(f"record {count + 1}: seq {seq} stands here")
        if prev != head:
            raise Broken(
                f"record {count + 1}: prev_hash is not the hash of the record before: "
                f"want {head or 'none'}, got {prev or 'none'}"
            )
        head = hashlib.sha256(line).hexdigest()
        count += 1
        if head == wanted:
            found = count
    if count == 0:
        raise Broken("no records")
    if wanted is not None and found is None:
        raise Broken(f"the chain ends at record {count} without the given head: want {wanted}, got {head}")
    return count, head, found


def main():
    parser = argparse.ArgumentParser(
        description="Verify the hash chain of exported agentcell records.",
        epilog="example: agentctl export --session S | python3 verify_chain.py",
    )
    parser.add_argument("file", nargs="?", help="exported lines (default: standard input)")
    parser.add_argument("--head", help="a hash that the chain must contain")
    options = parser.parse_args()
    try:
        if options.file is None:
            count, head, found = verify(sys.stdin.buffer, options.head)
        else:
            with open(options.file, "rb") as lines:
                count, head, found = verify(lines, options.head)
    except (Broken, OSError) as error:
        print(f"not verified: {error}", file=sys.stderr)
        return 1
    print(f"verified: {count} records, head {head}")
    if found is not None and found != count:
        print(f"the given head is record {found}; {count - found} records follow it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
