#!/usr/bin/env python3
"""Has pycrate (pip install pycrate) decode NAS messages: one message in hexadecimal a line on standard input.

A message must be decoded without error, every element of it must be one that pycrate knows the inner structure of or
keeps as octets, and it must encode to the same octets again. The first line that fails is named, and the exit status
is 1. With --show each message is printed. Blank lines and those that begin with # are skipped.
"""

import logging
import re
import sys
from binascii import hexlify, unhexlify

from pycrate_mobile import TS24007
from pycrate_mobile.TS24501_FGMM import FGMMSecProtNASMessage, FGMMTypeClasses
from pycrate_mobile.TS24501_FGSM import FGSMTypeClasses


NAI = re.compile(b'[\x11\x21\x31][^@]*@')
judged = b''


class Failed(Exception):
    """What pycrate has against a message."""


def complain(text, *args):
    text = text % args if args else text
    # pycrate 0.7 reads a SUCI in NAI form but leaves its octets unread, and says so of a right one.
    if 'uncorrect decoding for IE, 5GSID' in text and NAI.search(judged):
        return
    # It looks for no length before the areas of a LADN (TS 24.501 §9.11.3.30).
    if 'unable to decode IE, LADNInfo' in text:
        return
    raise Failed(text)


def judge(octets, show):
    """Raises what is wrong with one message."""
    global judged
    judged = octets
    if octets[0] == 0x2e:
        message = FGSMTypeClasses[octets[3]]()
    elif octets[0] == 0x7e and octets[1] == 0:
        message = FGMMTypeClasses[octets[2]]()
    elif octets[0] == 0x7e:
        message = FGMMSecProtNASMessage()
    else:
        raise Failed('neither 5GMM nor 5GSM')
    message.from_bytes(octets)
    again = message.to_bytes()
    if again != octets:
        raise Failed('encodes to %s' % hexlify(again).decode())
    if show:
        print(message.show())


def main():
    show = '--show' in sys.argv[1:]
    # To an element that it does not know or cannot decode pycrate gives a line of its log; here it is a failure.
    TS24007._logger.warning = complain
    TS24007._logger.info = complain
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
