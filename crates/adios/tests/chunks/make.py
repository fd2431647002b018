#!/usr/bin/env python3
"""Writes `blosc1` and `blosc2`: chunks of real libraries, back to back. Needs numcodecs and blosc2.

Element i of a chunk of elements of `size` bytes is the low bytes of i * i * 3 + i // 64; `plain` of the tests makes the same.
"""
import itertools
import pathlib
import sys

import numpy

HERE = pathlib.Path(__file__).parent


def plain(size, count):
    i = numpy.arange(count, dtype="<u8")
    wide = numpy.zeros((count, 16), "u1")
    wide[:, :8] = (i * i * 3 + i // 64).view("u1").reshape(-1, 8)
    return wide[:, :size].tobytes()


def blosc1():
    from numcodecs import blosc

    shapes = [(8, 300, 0), (4, 501, 1024), (3, 203, 384), (1, 1000, 256)]
    codecs = [b"blosclz", b"lz4", b"lz4hc", b"zlib", b"zstd"]
    for codec, filter, (size, count, block) in itertools.product(codecs, range(3), shapes):
        array = numpy.frombuffer(plain(size, count), f"V{size}")
        yield blosc.compress(array, codec, 9, filter, block)
    # Copied: blosc gives up.
    yield blosc.compress(numpy.frombuffer(plain(8, 10), "V8"), b"lz4", 0, 1, 0)


def blosc2():
    import blosc2 as b2

    shapes = [(8, 300, 0), (4, 501, 1024), (3, 203, 384), (1, 1000, 256)]
    codecs = [b2.Codec.BLOSCLZ, b2.Codec.LZ4, b2.Codec.ZLIB, b2.Codec.ZSTD]
    filters = [b2.Filter.NOFILTER, b2.Filter.SHUFFLE, b2.Filter.BITSHUFFLE]
    splits = [b2.SplitMode.ALWAYS_SPLIT, b2.SplitMode.NEVER_SPLIT]
    for codec, filter, (size, count, block), split in itertools.product(codecs, filters, shapes, splits):
        yield b2.compress2(
            plain(size, count),
            codec=codec,
            clevel=9,
            typesize=size,
            filters=[b2.Filter.NOFILTER] * 5 + [filter],
            blocksize=block,
            splitmode=split,
        )
    # Two filters.
    both = [b2.Filter.NOFILTER] * 4 + [b2.Filter.SHUFFLE, b2.Filter.BITSHUFFLE]
    yield b2.compress2(plain(8, 300), codec=b2.Codec.LZ4, clevel=9, typesize=8, filters=both)
    # Copied.
    yield b2.compress2(plain(8, 10), clevel=0, typesize=8)


for make in (blosc1, blosc2):
    if len(sys.argv) < 2 or make.__name__ in sys.argv[1:]:
        (HERE / make.__name__).write_bytes(b"".join(make()))
