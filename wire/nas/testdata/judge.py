#!/usr/bin/env python3
"""Has pycrate (pip install pycrate) decode NAS messages: one message in hexadecimal a line on standard input.

A message must be decoded without error, every element of it must be one that pycrate knows the inner structure of or
keeps as octets, and it must encode to the same octets again. The first line that fails is named, and the exit status
is 1. With --show each message is printed. Blank lines and those that begin with # are skipped.
"""

import logging
import sys
from binascii import hexlify, unhexlify

from pycrate_mobile import TS24007
from pycrate_mobile.NAS5G import parse_NAS5G


class Failed(Exception):
    """What pycrate has against a message."""


def complain(text, *args):
    raise Failed(text % args if args else text)


def judge(octets, show):
    """Raises what is wrong with one message."""
    message, error = parse_NAS5G(octets, inner=False)
    if error or message is None:
        raise Failed('error %s' % error)
    again = message.to_bytes()
    if again != octets:
        raise Failed('encodes to %s' % hexlify(again).decode())
    if show:
        print(message.show())


def main():
    show = '--show' in sys.argv[1:]
    # An element that it cannot decode is only worth a warning to pycrate; here it is a failure.
    TS24007._logger.warning = complain
    for log in logging.Logger.manager.loggerDict.values():
        if isinstance(log, logging.Logger):
            log.setLevel(logging.ERROR)
    count = 0
    for number, line in enumerate(sys.stdin, 1):
        digits = line.split()
        if not digits or digits[0].startswith('#'):
            continue
        try:
            judge(unhexlify(digits[0]), show)
        except Exception as wrong:  # whatever pycrate raises is a verdict
            sys.exit('line %d: %s: %s: %s' % (number, digits[0], type(wrong).__name__, wrong))
        count += 1
    if count == 0:
        sys.exit('no message on standard input')
    print('%d messages decoded and encoded again' % count)


if __name__ == '__main__':
    main()
