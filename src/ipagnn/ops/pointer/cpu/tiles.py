"""Matrix products for compiled code that several threads share.

A product is cut into tiles: some rows, times a panel of the matrix, two vectors wide. All sums of a tile stay in
registers, and each is added up in the order of the inner index. So what comes out for a row does not depend on the rows
beside it, nor on how threads share them, as it may with a library's product. And where the processor has vectors of 512
bits, all are used: MKL uses half of each on AMD's (110 instead of 250 GFLOP/s on one core).
"""

from typing import Any, Final

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ipagnn.ops.pointer.cpu.math import jit

_features = llvm.get_host_cpu_features()
VECTOR: Final = 64 if _features.get("avx512f") else 32 if _features.get("avx") else 16
"""Bytes of a vector register."""
HEIGHT: Final = 14 if _features.get("avx512f") else 6
"""Rows of a tile, of which each needs two registers, besides three for what they are multiplied with."""
BLOCK: Final = 128
GROUP: Final = 4
"""Where columns are multiplied with columns: rows that are copied to one place, and panels that are copied at once."""


def panel_width(itemsize: int) -> int:
    """Columns of a panel."""
    return 2 * VECTOR // itemsize


def padded(columns: int, itemsize: int) -> int:
    """Numbers from one row of a buffer to the next.

    Whole panels fit; and half of one besides, as rows that lie a power of two apart would share places in the cache.
    """
    width = panel_width(itemsize)
    return -(-columns // width) * width + width // 2


@intrinsic
def _tile(context, rows, x, row_stride, inner_stride, panel, panel_stride, out, out_stride, inner, keep, kind):  # type: ignore[no-untyped-def]
    """`out = x @ panel`, or `out += x @ panel` if `keep` is not 0; see `tile`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        rows, x, row_stride, inner_stride, panel, panel_stride, out, out_stride, inner, keep, _ = values
        number = context.get_value_type(signature.args[-1])
        size = 4 if isinstance(number, ir.FloatType) else 8
        lanes = VECTOR // size
        vector, whole, place = ir.VectorType(number, lanes), ir.IntType(64), ir.IntType(32)
        kind = ir.FunctionType(vector, [vector] * 3)
        name = f"llvm.fmuladd.v{lanes}f{8 * size}"
        multiply_add = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
        nothing, undefined = ir.Constant(vector, [0.0] * lanes), ir.Constant(vector, ir.Undefined)
        first_lane = ir.Constant(ir.VectorType(place, lanes), [0] * lanes)

        def count(n: int) -> Any:
            return ir.Constant(whole, n)

        def apart(base: Any, stride: Any, n: int) -> Any:
            """The address `n` strides, which count numbers, behind a base."""
            return builder.add(base, builder.mul(stride, count(n * size)))

        def load(address: Any, what: Any = vector) -> Any:
            found = builder.load(builder.inttoptr(address, what.as_pointer()))
            found.align = size
            return found

        def store(value: Any, address: Any) -> None:
            builder.store(value, builder.inttoptr(address, vector.as_pointer())).align = size

        done = builder.append_basic_block("done")
        cases = builder.switch(rows, done)
        for height in range(1, HEIGHT + 1):
            before, loop, after, plain, added = (
                builder.append_basic_block(f"{name}{height}") for name in ("before", "loop", "after", "plain", "added")
            )
            cases.add_case(count(height), before)
            builder.position_at_end(before)
            starts = [apart(x, row_stride, r) for r in range(height)]
            builder.branch(loop)

            builder.position_at_end(loop)
            index, offset, address = (builder.phi(whole) for _ in range(3))
            for variable, start in ((index, count(0)), (offset, count(0)), (address, panel)):
                variable.add_incoming(start, before)
            sums = [[builder.phi(vector) for _ in range(2)] for _ in range(height)]
            right = [load(builder.add(address, count(v * VECTOR))) for v in range(2)]
            total = []
            for start, pair in zip(starts, sums, strict=True):
                left = builder.insert_element(
                    undefined, load(builder.add(start, offset), number), ir.Constant(place, 0)
                )
                left = builder.shuffle_vector(left, undefined, first_lane)
                total.append([builder.call(multiply_add, [left, right[v], pair[v]]) for v in range(2)])
                for old, new in zip(pair, total[-1], strict=True):
                    old.add_incoming(nothing, before)
                    old.add_incoming(new, loop)
            following = builder.add(index, count(1))
            index.add_incoming(following, loop)
            offset.add_incoming(apart(offset, inner_stride, 1), loop)
            address.add_incoming(apart(address, panel_stride, 1), loop)
            builder.cbranch(builder.icmp_signed("<", following, inner), loop, after)

            builder.position_at_end(after)
            builder.cbranch(builder.icmp_signed("==", keep, count(0)), plain, added)
            for block in (plain, added):
                builder.position_at_end(block)
                for r, pair in enumerate(total):
                    for v, value in enumerate(pair):
                        target = builder.add(apart(out, out_stride, r), count(v * VECTOR))
                        store(value if block is plain else builder.fadd(value, load(target)), target)
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 10, kind), generate


@jit
def tile(rows, x, row_stride, inner_stride, panel, panel_stride, out, out_stride, inner, keep, kind):  # type: ignore[no-untyped-def]
    """`out = x @ panel`, or `out += x @ panel` if `keep` is not 0, for up to `HEIGHT` rows and a panel's columns.

    Args:
        rows: Number of rows.
        x, panel, out: Addresses.
        row_stride, inner_stride: Numbers from row to row, and from column to column, of x.
        panel_stride, out_stride: Numbers from row to row.
        inner: Columns of x, which are rows of the panel; at least one.
        keep: Whether to add to what is there.
        kind: A number of the type that all have.
    """
    _tile(rows, x, row_stride, inner_stride, panel, panel_stride, out, out_stride, inner, keep, kind)  # type: ignore[call-arg]


@jit
def multiply_rows(x, first, last, panels, inner, out, place, keep):  # type: ignore[no-untyped-def]
    """The rows `first : last` of x, times a matrix in panels, to the rows from `place` on of `out`.

    Rows of buffers lie `padded` numbers apart. `panels` [panel, inner, panel_width] are of `pack`.
    """
    count, size, width = last - first, x.itemsize, panels.shape[2]
    blocks = (count + HEIGHT - 1) // HEIGHT
    kind = x.dtype.type(0)
    for p in range(panels.shape[0]):
        panel = panels.ctypes.data + p * panels.strides[0]
        column = out.ctypes.data + p * width * size
        for b in range(blocks):
            low, high = count * b // blocks, count * (b + 1) // blocks
            tile(
                high - low, x.ctypes.data + (first + low) * x.strides[0], x.strides[0] // size, 1, panel, width,
                column + (place + low) * out.strides[0], out.strides[0] // size, inner, keep, kind,
            )  # fmt: skip


@jit
def add_columns(x, y, first, last, columns, start, copied, sums):  # type: ignore[no-untyped-def]
    """Add `x[first:last, :columns].T @ y[first:last, start:]` to some panels, in the order of the rows.

    Args:
        start: First column of y; the others follow, as many as the panels of `sums` have.
        copied: Memory to work in. [GROUP, BLOCK, panel_width]
        sums: [up to GROUP, columns, panel_width]
    """
    size, panels, width = x.itemsize, sums.shape[0], sums.shape[2]
    blocks = (columns + HEIGHT - 1) // HEIGHT
    kind = x.dtype.type(0)
    for row in range(first, last, BLOCK):
        count = min(BLOCK, last - row)
        for i in range(count):
            for p in range(panels):
                for j in range(width):
                    copied[p, i, j] = y[row + i, start + p * width + j]
        for p in range(panels):
            for b in range(blocks):
                low, high = columns * b // blocks, columns * (b + 1) // blocks
                tile(
                    high - low, x.ctypes.data + row * x.strides[0] + low * size, 1, x.strides[0] // size,
                    copied.ctypes.data + p * copied.strides[0], width,
                    sums.ctypes.data + p * sums.strides[0] + low * sums.strides[1], width, count, 1, kind,
                )  # fmt: skip


@jit
def pack(matrix, transposed, panels, p):  # type: ignore[no-untyped-def]
    """Copy the columns of panel p of a matrix, or of its transpose; 0 where it has no such column."""
    _, inner, width = panels.shape
    first = p * width
    columns = matrix.shape[0] if transposed else matrix.shape[1]
    for k in range(inner):
        for j in range(width):
            if first + j >= columns:
                panels[p, k, j] = 0
            elif transposed:
                panels[p, k, j] = matrix[first + j, k]
            else:
                panels[p, k, j] = matrix[k, first + j]


def panels_for(inner: int, columns: int, dtype: "np.dtype[Any]") -> "np.ndarray[Any, Any]":
    """Memory for a matrix in panels."""
    width = panel_width(dtype.itemsize)
    return np.empty((-(-columns // width), inner, width), dtype)
