"""Makes tests/golden/quant/vectors.json from quant_numpy.py: inputs, codes, scales and packed words for the C++ quantizers.

usage: make_quant_golden.py OUT.json      (numpy only)

Symmetric vectors use the stopping rule of one group (each group is given to scale_only as a tensor of its own) and codes that are
computed again against the bf16 scale, as docs/model.md 12.6 and 12.7 say. bf16 numbers are written as their 16 bits.
"""
import json
import sys

import numpy as np

from quant_numpy import F, asym_engine, asym_minmax, bf16, pack_scale_zero, pack_tile4d, scale_only


def bits(x):
    return (np.asarray(x, F).reshape(-1).view(np.uint32) >> 16).tolist()


def symmetric(w, group, qmin, qmax):
    rows = w.reshape(-1, group)
    scale = np.array([scale_only(r[None], group, qmin, qmax)[1][0, 0] for r in rows], F)
    codes = np.clip(np.rint(rows / scale[:, None]), qmin, qmax)
    return {"codes": codes.astype(int).reshape(-1).tolist(), "scale": bits(scale)}


def asymmetric(w, group, fn):
    codes, scale, zero = fn(w, group)
    return {"codes": codes.astype(int).reshape(-1).tolist(), "scale": bits(scale), "zero": bits(zero)}


def main():
    rng = np.random.default_rng(11)
    normal = bf16(rng.standard_normal((8, 128)) * 0.02)
    outliers = normal.copy()
    outliers[:, ::37] *= 9
    shifted = bf16(normal + 0.05)
    special = np.zeros((8, 128), F)
    special[1] = bf16(0.0123)
    special[2, 5] = bf16(1.5)
    special[3] = bf16(np.linspace(-1, 1, 128))
    special[4] = bf16(1e-9 * rng.standard_normal(128))
    special[5] = bf16(1e6 * rng.standard_normal(128))
    special[6] = -bf16(np.abs(rng.standard_normal(128)))
    special[7, ::2] = bf16(0.25)
    cases = []
    for name, w in (("normal", normal), ("outliers", bf16(outliers)), ("shifted", shifted), ("special", special)):
        for group in (32, 64, 128):
            codes, scale, zero = asym_engine(w, group)
            cases.append({
                "name": f"{name} g{group}", "rows": 8, "cols": 128, "group": group, "values": bits(w),
                "sym4": symmetric(w, group, -8, 7), "sym8": symmetric(w, group, -128, 127),
                "minmax": asymmetric(w, group, asym_minmax), "engine": asymmetric(w, group, asym_engine),
                "words": pack_tile4d(codes).view(np.uint32).reshape(-1).tolist(),
                "scale_zero": bits(pack_scale_zero(scale, zero)),
            })
    json.dump({"cases": cases}, open(sys.argv[1], "w"), separators=(",", ":"))


if __name__ == "__main__":
    main()
