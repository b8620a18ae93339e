"""Holds tile-packed tensors of an exported artifact against PyTorch's own int4 operators. Needs torch with CUDA.

  check_torch_packing.py ARTIFACT.safetensors [--every N]       (or a manifest's data file with --formats MANIFEST)
  check_torch_packing.py --random                                no artifact: random codes of the model's shapes

For every "4w tile_packed_to_4d" tensor, with inner_k_tiles = 8:
  1. unpack (our layout, docs/formats.md) -> torch.ops.aten._convert_weight_to_int4pack gives our words back, bit for bit;
  2. torch's packing of other random codes, unpacked by our rule, gives those codes;
  3. _weight_int4pack_mm of the identity gives our dequantized weight, bit for bit: bf16((code - 8) * scale + zero);
  4. _weight_int4pack_mm of random bf16 rows equals the fp32 product with that weight within the rounding of its bf16 output.
Prints one line a tensor and exits 1 when anything differs. The safetensors reader is part of this file: nothing else is needed.
"""
import argparse
import json
import struct
import sys

import torch

DEV = "cuda"
COLUMN = torch.tensor([0, 8, 16, 24, 1, 9, 17, 25])  # of nibble i of a word, from k0 = 32 * word + 2 * (lane % 4)
# [N, K] of the full-size model's linear layers and of shapes at the borders of the layout.
SHAPES = [(4096, 3072), (1024, 3072), (3072, 4096), (9216, 3072), (3072, 9216), (2048, 1280), (1280, 2048), (5120, 1280), (1280, 5120),
          (3072, 5120), (8, 128), (16, 256), (24, 384), (8, 1280)]


def read_header(path):
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(length)), 8 + length


def read_tensor(path, header, start, name):
    entry = header[name]
    begin, end = entry["data_offsets"]
    with open(path, "rb") as file:
        file.seek(start + begin)
        raw = bytearray(file.read(end - begin))
    dtype = {"I32": torch.int32, "BF16": torch.bfloat16}[entry["dtype"]]
    return torch.frombuffer(raw, dtype=dtype).reshape(entry["shape"])


def places(n, k):
    """Row and column of every nibble: two index tensors [N/8, K/128, 32, 4, 8]."""
    a, b, t, j, i = torch.meshgrid(torch.arange(n // 8), torch.arange(k // 128), torch.arange(32), torch.arange(4), torch.arange(8), indexing="ij")
    return 8 * a + t // 4, 128 * b + 32 * j + 2 * (t % 4) + COLUMN[i]


def unpack(words):
    """int32 [N/8, K/128, 32, 4] -> codes uint8 [N, K], by our layout."""
    n, k = words.shape[0] * 8, words.shape[1] * 128
    row, col = places(n, k)
    nibbles = (words.cpu().long().unsqueeze(-1) >> (4 * torch.arange(8))) & 15
    codes = torch.zeros(n, k, dtype=torch.uint8)
    codes[row, col] = nibbles.to(torch.uint8)
    return codes


def torch_pack(codes):
    pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).contiguous().to(DEV)
    return torch.ops.aten._convert_weight_to_int4pack(pairs, 8).cpu()


def dequantize(codes, scale_zero, group):
    """bf16((code - 8) * scale + zero), rounded once: fp64 holds the exact sum."""
    scale = scale_zero[:, :, 0].T.double().repeat_interleave(group, 1)
    zero = scale_zero[:, :, 1].T.double().repeat_interleave(group, 1)
    exact = (codes.double() - 8) * scale + zero
    # fp64 -> bf16 in one rounding: fp64 -> fp32 towards odd, then nearest even.
    near = exact.float()
    bits = near.view(torch.int32)
    error = exact - near.double()
    up = (error > 0) == (near > 0)
    odd = torch.where((error != 0) & (bits % 2 == 0), torch.where(up, bits + 1, bits - 1), bits)
    return odd.view(torch.float32).to(torch.bfloat16)


def check(name, words, scale_zero, group, generator):
    n, k = words.shape[0] * 8, words.shape[1] * 128
    codes = unpack(words)
    bad = []
    if not torch.equal(torch_pack(codes), words):
        bad.append("torch packs our codes into other words")
    other = torch.randint(0, 16, (n, k), dtype=torch.uint8, generator=generator)
    if not torch.equal(unpack(torch_pack(other)), other):
        bad.append("torch's words unpack into other codes")
    weight = dequantize(codes, scale_zero, group)
    packed, table = words.to(DEV), scale_zero.contiguous().to(DEV)
    # Rows of the identity, a few hundred at a time: every product is one weight, every sum exact.
    wrong = 0
    for first in range(0, k, 512):
        eye = torch.zeros(min(512, k - first), k, dtype=torch.bfloat16, device=DEV)
        eye[torch.arange(len(eye)), first + torch.arange(len(eye))] = 1
        got = torch.ops.aten._weight_int4pack_mm(eye, packed, group, table).cpu()
        want = weight[:, first:first + len(eye)].T
        wrong += int(((got != want) & ~((got == 0) & (want == 0))).sum())
    if wrong:
        bad.append("%d of %d weights differ in _weight_int4pack_mm(identity)" % (wrong, n * k))
    for rows in (1, 4, 16, 33):
        x = torch.randn(rows, k, generator=generator).to(torch.bfloat16)
        got = torch.ops.aten._weight_int4pack_mm(x.to(DEV), packed, group, table).cpu().double()
        want = x.double() @ weight.double().T
        # fp32 accumulation of k products, then one bf16 rounding.
        bound = want.abs() * 2.0 ** -8 + k * 2.0 ** -24 * (x.double().abs() @ weight.double().abs().T) + 1e-30
        if not bool(((got - want).abs() <= bound).all()):
            bad.append("product of %d rows is off by %.3g" % (rows, float(((got - want).abs() / bound).max())))
    print("%-4s %-100s %5d x %5d g%d%s" % ("FAIL" if bad else "ok", name, n, k, group, "  " + "; ".join(bad) if bad else ""))
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", nargs="?")
    parser.add_argument("--formats", help="manifest, where ARTIFACT is its data file")
    parser.add_argument("--every", type=int, default=1, help="check every N-th tensor only")
    parser.add_argument("--random", action="store_true")
    args = parser.parse_args()
    generator = torch.Generator().manual_seed(3)
    good, count = True, 0
    if args.random:
        for n, k in SHAPES:
            for group in (32, 64, 128, 256):
                if k % group:
                    continue
                words = torch_pack(torch.randint(0, 16, (n, k), dtype=torch.uint8, generator=generator))
                table = torch.stack([torch.rand(k // group, n, generator=generator) * 0.01 + 0.001,
                                     torch.randn(k // group, n, generator=generator) * 0.01], -1).to(torch.bfloat16)
                good &= check("random", words, table, group, generator)
                count += 1
    else:
        header, start = read_header(args.artifact)
        formats = json.loads(read_header(args.formats or args.artifact)[0]["__metadata__"]["voxrt.formats"])
        names = [name for name, text in formats.items() if text.startswith("4w tile_packed_to_4d")]
        for name in names[::args.every]:
            words = read_tensor(args.artifact, header, start, name)
            table = read_tensor(args.artifact, header, start, name + ".scale_zero")
            good &= check(name, words, table, int(formats[name].rsplit("g", 1)[1]), generator)
            count += 1
    print("%d tensors checked: %s" % (count, "all equal" if good and count else "FAILED"))
    return 0 if good and count else 1


if __name__ == "__main__":
    sys.exit(main())
