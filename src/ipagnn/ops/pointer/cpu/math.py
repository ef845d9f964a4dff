"""What the compiled code of the models on a CPU is made of: vectors of tanh and sigmoid, and torch's matrix product."""

import ctypes
import math
from functools import cache
from typing import Any

import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

jit = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})
# Not numbers stay what they are: training looks for them.
inlined = njit(nogil=True, error_model="numpy", inline="always", fastmath={"contract", "reassoc", "nsz", "arcp"})
# For what computes with floats within a function: the compiler has some freedom in how, which it may use differently in
# each copy, and which copy a call reaches depends on whether the caller was compiled now or read from the cache.


@cache
def product(dtype: torch.dtype) -> int | None:
    """The address of the matrix product (Fortran's xGEMM) that torch uses; None if there is none for the type."""
    name = {torch.float32: "sgemm_", torch.float64: "dgemm_"}.get(dtype)
    found = getattr(ctypes.CDLL(torch._C.__file__), name, None) if name else None
    return ctypes.cast(found, ctypes.c_void_p).value if found else None


@intrinsic
def _gemm(context, address, m, n, k, a, lda, b, ldb, beta, c, ldc):  # type: ignore[no-untyped-def]
    """Call the product at an address: `c = a @ b + beta * c`, which are addresses too, column after column."""

    def generate(context, builder, signature, values):  # type: ignore[no-untyped-def]
        address, m, n, k, a, lda, b, ldb, beta, c, ldc = values
        place = ir.IntType(8).as_pointer()

        def stored(value: Any) -> Any:
            """Everything goes by address. Integers have 64 bits: where 32 are read, they are the lower ones."""
            return builder.bitcast(cgutils.alloca_once_value(builder, value), place)  # type: ignore[no-untyped-call]

        plain, one = stored(ir.Constant(ir.IntType(8), ord("N"))), stored(ir.Constant(beta.type, 1.0))
        kind = ir.FunctionType(ir.VoidType(), [place] * 13)
        builder.call(
            builder.inttoptr(address, kind.as_pointer()),
            [
                plain, plain, stored(m), stored(n), stored(k), one, builder.inttoptr(a, place), stored(lda),
                builder.inttoptr(b, place), stored(ldb), stored(beta), builder.inttoptr(c, place), stored(ldc),
            ],
        )  # fmt: skip
        return context.get_dummy_value()

    whole = types.int64
    return types.void(whole, whole, whole, whole, whole, whole, whole, whole, beta, whole, whole), generate


@jit
def multiply(address, x, kernel, out, keep):  # type: ignore[no-untyped-def]
    """`out = x @ kernel + keep * out`, where rows may lie apart but the numbers of a row side by side."""
    size = out.itemsize
    _gemm(  # type: ignore[call-arg]
        address, out.shape[1], out.shape[0], x.shape[1],
        kernel.ctypes.data, kernel.strides[0] // size, x.ctypes.data, x.strides[0] // size,
        out.dtype.type(keep), out.ctypes.data, out.strides[0] // size,
    )  # fmt: skip


_F = np.float32
_MOST = _F(7.99881172180175781)  # where the approximation reaches 1
_ODD = tuple(
    map(_F, (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
             1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03))
)  # fmt: skip
_EVEN = tuple(map(_F, (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    raise NotImplementedError("compiled code only")


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    raise NotImplementedError("compiled code only")


@overload(tanh, jit_options={"fastmath": {"contract", "reassoc", "nsz", "arcp"}})
def _tanh_by_type(x):  # type: ignore[no-untyped-def]
    if x != types.float32:
        return lambda x: math.tanh(x)

    def rational(x):  # type: ignore[no-untyped-def]
        """Quotient of polynomials (as in Eigen), within some units in the last place; a call would not be a vector."""
        x = _MOST if x > _MOST else x
        x = -_MOST if x < -_MOST else x
        y = x * x
        p = _ODD[0]
        p = p * y + _ODD[1]
        p = p * y + _ODD[2]
        p = p * y + _ODD[3]
        p = p * y + _ODD[4]
        p = p * y + _ODD[5]
        p = p * y + _ODD[6]
        q = _EVEN[0]
        q = q * y + _EVEN[1]
        q = q * y + _EVEN[2]
        q = q * y + _EVEN[3]
        return x * p / q

    return rational


@overload(sigmoid, jit_options={"fastmath": {"contract", "reassoc", "nsz", "arcp"}})
def _sigmoid_by_type(x):  # type: ignore[no-untyped-def]
    if x != types.float32:
        return lambda x: 1.0 / (1.0 + math.exp(-x))
    half = _F(0.5)
    return lambda x: half * tanh(half * x) + half
