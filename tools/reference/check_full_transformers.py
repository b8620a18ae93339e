"""Compares every tap of the engine with transformers on the same weights, audio and tokens; made for full-size models on a GPU.

usage: check_full_transformers.py MODEL TAPS... [--device cuda|cpu] [--attention eager|sdpa] [--margin 0] [--json FILE]
  MODEL  the model file that the taps were made with: a directory in the Mistral layout, or an artifact of `voxrt export` (its
         weights are dequantized as docs/formats.md says)
  TAPS   files of build/*/bin/dump_taps
needs torch, transformers with VoxtralRealtime, safetensors, numpy

The oracle is transformers in fp32 (TF32 off, eager attention), fed transformers' own mel and the engine's tokens. Beside our error stands
that of transformers in bf16 (--attention, sdpa by default) on the same weights, all of which bf16 holds exactly. Errors are relative:
|x - oracle| / |oracle|, Frobenius norms over all rows of a tap. A tap is ok where ours <= (1 + margin) x that of bf16. Our token of a position may
differ from the oracle's only in a near tie: its logit within 6 rms errors of the bf16 logits below the best. Exit status 1 if anything is not ok.
"""
import argparse
import gc
import json
import math
import os
import re
import sys
import time

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import VoxtralRealtimeFeatureExtractor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_map

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False                                  # convolutions: on by default
NEAR_TIE_RMS = 6.0


# ------------------------------------------------------------------------------------------ weights

def codes_int4(packed):
    """[N, K/2] bytes -> [N, K] codes: runs of 32 inputs, low nibbles first."""
    runs = packed.reshape(packed.shape[0], -1, 16)
    return torch.cat((runs & 15, runs >> 4), dim=2).reshape(packed.shape[0], -1).to(torch.int32) - 8


def codes_tile(words):
    """[N/8, K/128, 32, 4] words -> [N, K] codes 0..15."""
    n8, k128 = words.shape[:2]
    word = words.to(torch.int64) & 0xFFFFFFFF
    nibbles = torch.stack([(word >> (4 * i)) & 15 for i in range(8)], dim=-1)           # [a, b, lane, j, nibble]
    nibbles = nibbles.reshape(n8, k128, 8, 4, 4, 2, 4)                                   # lane = 4 n + t; nibble = 4 odd + i
    # input = 128 b + 32 j + 8 i + 2 t + odd
    return nibbles.permute(0, 2, 1, 4, 6, 3, 5).reshape(8 * n8, 128 * k128).to(torch.int32)


def dequantize(name, form, tensors):
    """The bf16 values of a quantized weight; docs/formats.md."""
    if "tile" in form:
        codes = codes_tile(tensors[name])
        pairs = tensors[name + ".scale_zero"].double().permute(1, 0, 2)                  # [N, K/g, 2]
        groups = (codes - 8).double().reshape(codes.shape[0], pairs.shape[1], -1)
        # The fp64 sum of these is exact or inexact far below bf16's last bit; the way to bf16 leads over fp32, which must not tip a tie.
        exact = groups * pairs[:, :, :1] + pairs[:, :, 1:]
        near = exact.float()
        bits = near.view(torch.int32)
        nudge = torch.where((exact > near.double()) == (near > 0), 1, -1).to(torch.int32)
        odd = torch.where((exact != near.double()) & (bits & 1 == 0), bits + nudge, bits)
        return odd.view(torch.float32).to(torch.bfloat16).reshape(codes.shape)
    codes = tensors[name].to(torch.int32) if "8w" in form else codes_int4(tensors[name])
    scale = tensors[name + ".scale"].float()
    return (codes.float().reshape(codes.shape[0], scale.shape[1], -1) * scale[:, :, None]).to(torch.bfloat16).reshape(codes.shape)


def load_weights(path, device):
    """params.json and name -> bf16 tensor of a checkpoint directory or an artifact; and what the weights are."""
    if os.path.isdir(path):
        tensors = load_file(os.path.join(path, "consolidated.safetensors"), device=device)
        return json.load(open(os.path.join(path, "params.json"))), tensors, "as stored"
    with safe_open(path, "pt") as file:
        meta = file.metadata()
    if meta.get("voxrt.part") != "whole":
        sys.exit("%s: expected a whole artifact of `voxrt export`, not a %s" % (path, meta.get("voxrt.part", "foreign file")))
    formats = json.loads(meta["voxrt.formats"])
    if any(form.startswith("8da") for form in formats.values()):
        sys.exit("%s has int8 activations, which transformers has not; export with 4w or 8w" % path)
    stored = load_file(path, device=device)
    params = json.loads(bytes(stored["params.json"].cpu().tolist()).decode())
    tensors = {}
    for name in list(stored):
        if name in formats:
            tensors[name] = dequantize(name, formats[name], stored)
        elif not re.search(r"\.(scale|scale_zero)$", name) and name not in ("params.json", "tekken.json", "voxrt.sha256"):
            tensors[name] = stored[name]
    kinds = {}
    for form in formats.values():
        kinds[form] = kinds.get(form, 0) + 1
    return params, tensors, ", ".join("%d x %s" % (count, form) for form, count in sorted(kinds.items()))


# ------------------------------------------------------------------------------------------ transformers' taps

def mel_of(pcm, delay, left):
    right = (-len(pcm)) % 1280 + 1280 * (delay + 11)
    padded = np.concatenate([np.zeros(1280 * left, np.float32), pcm, np.zeros(right, np.float32)])
    return VoxtralRealtimeFeatureExtractor()._torch_extract_fbank_features(torch.from_numpy(padded)[None]).float()


def run(model, mel, tokens_in, delay, first_head, device, dtype):
    """Tap -> [rows, columns] of one teacher-forced pass over the whole signal."""
    taps, handles = {}, []

    def keep(name):
        def hook(_module, _inputs, output):
            taps[name] = (output[0] if isinstance(output, tuple) else output)[0].detach()
        return hook

    tower, text = model.model.audio_tower, model.model.language_model
    handles.append(tower.embedder.register_forward_hook(keep("conv")))
    handles.append(tower.norm.register_forward_hook(keep("encoder")))
    for stack, layers in (("encoder", tower.layers), ("decoder", text.layers)):
        for i, layer in enumerate(layers):
            handles.append(layer.register_forward_hook(keep("%s.%02d" % (stack, i))))
    mel = mel.to(device=device, dtype=dtype)
    taps["mel"] = mel[0].T
    with torch.no_grad():
        encoded = tower(input_features=mel).last_hidden_state
        audio = model.model.multi_modal_projector(encoded.reshape(1, -1, 4 * encoded.shape[-1]))
        taps["adapter"] = audio[0]
        ids = torch.from_numpy(tokens_in.astype(np.int64)).to(device)[None]
        t_cond = model.model.time_embedding(torch.full((1,), float(delay), device=device, dtype=dtype))[None]
        hidden = text(inputs_embeds=model.get_input_embeddings()(ids) + audio, use_cache=False, t_cond=t_cond,
                      position_ids=torch.arange(ids.shape[1], device=device)[None]).last_hidden_state
        taps["logits"] = model.lm_head(hidden[0, first_head:])
    for handle in handles:
        handle.remove()
    return taps


def relative(x, oracle):
    x, oracle = x.double(), oracle.double()
    return float((x - oracle).norm() / oracle.norm()) if bool(torch.isfinite(x).all()) else math.inf


# ------------------------------------------------------------------------------------------ comparison

class Dump:
    def __init__(self, path, device):
        with safe_open(path, "pt") as file:
            self.meta = file.metadata()
        self.path, self.device = path, device
        self.taps = {k: v.numpy() for k, v in load_file(path).items()}
        self.delay, self.left = int(self.meta["delay_tokens"]), int(self.meta["left_pad_tokens"])
        self.first_head = self.left + self.delay
        self.tokens_in = self.taps["tokens_in"]
        self.mel = mel_of(self.taps["pcm"], self.delay, self.left)

    def run(self, model, dtype):
        return run(model, self.mel, self.tokens_in, self.delay, self.first_head, self.device, dtype)

    def ours(self, name):
        return torch.from_numpy(self.taps[name]).to(self.device)


def compare(dump, oracle, half, margin):
    """Prints the table of a dump; its rows, and whether all is ok."""
    print("\n%s: %s, KV %s, %s ticks a call, %d positions, delay %d" % (
        dump.path, dump.meta["device"], dump.meta["kv_type"], dump.meta["ticks_per_call"], len(dump.tokens_in), dump.delay))
    print("%-12s %-16s %12s %18s %7s" % ("tap", "shape", "ours", "transformers bf16", "ratio"))
    order = sorted((k for k in dump.taps if k not in ("pcm", "tokens", "tokens_in")), key=lambda k: (
        ("mel", "conv", "encoder", "adapter", "decoder", "logits").index(k.split(".")[0]), "." not in k, k))
    if set(order) != set(oracle):
        sys.exit("%s has other taps than the model: %s" % (dump.path, sorted(set(order) ^ set(oracle))))
    rows, good = [], True
    for name in order:
        ours = dump.ours(name)
        if ours.shape != oracle[name].shape:
            sys.exit("%s: tap %s is %s, of transformers %s" % (dump.path, name, tuple(ours.shape), tuple(oracle[name].shape)))
        a, b = relative(ours, oracle[name]), relative(half[name], oracle[name])
        ok = a <= b * (1 + margin)
        good = good and ok
        rows.append({"tap": name, "ours": a, "transformers_bf16": b, "ok": ok})
        print("%-12s %-16s %12.3e %18.3e %7.3f  %s" % (name, "x".join(map(str, ours.shape)), a, b, a / b if b else math.inf, "ok" if ok else "LARGER"))

    logits, mine = oracle["logits"].double(), dump.ours("logits").double()
    tokens = torch.from_numpy(dump.taps["tokens"].astype(np.int64)).to(logits.device)
    pick = lambda x, ids: x.gather(1, ids[:, None])[:, 0]
    best = logits.max(dim=1).values
    near_tie = NEAR_TIE_RMS * float((half["logits"].double() - logits).pow(2).mean().sqrt())
    gap_ours = best - pick(logits, tokens)
    gap_half = best - pick(logits, half["logits"].float().argmax(dim=1))
    is_argmax = bool((pick(mine, tokens) == mine.max(dim=1).values).all())
    tokens_ok = is_argmax and float(gap_ours.max()) <= near_tie
    result = {"positions": len(tokens), "near_tie": near_tie, "token_is_argmax_of_our_logits": is_argmax,
              "ours_differ": int((gap_ours > 0).sum()), "ours_largest_gap": float(gap_ours.max()),
              "bf16_differ": int((gap_half > 0).sum()), "bf16_largest_gap": float(gap_half.max()), "distinct": len(set(tokens.tolist())), "ok": tokens_ok}
    print("tokens: %(positions)d (%(distinct)d distinct); other than the oracle's: ours %(ours_differ)d, largest gap %(ours_largest_gap).2e; "
          "transformers bf16 %(bf16_differ)d, %(bf16_largest_gap).2e; near tie below %(near_tie).2e" % result, "ok" if tokens_ok else "WRONG")
    if not is_argmax:
        print("tokens: the engine's token is not the arg-max of its own logits")
    return {"taps_of": dump.meta, "rows": rows, "tokens": result}, good and tokens_ok


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n", 2)[2].split("\n")[0].replace("usage: ", ""))
    parser.add_argument("model")
    parser.add_argument("taps", nargs="+")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--attention", choices=("eager", "sdpa"), default="sdpa")
    parser.add_argument("--margin", type=float, default=0.0)
    parser.add_argument("--json")
    args = parser.parse_args()
    begin = time.time()
    params, weights, kinds = load_weights(args.model, args.device)
    print("%s: weights %s, loaded in %.1f s on %s" % (args.model, kinds, time.time() - begin, args.device), flush=True)
    dumps = [Dump(path, args.device) for path in args.taps]
    for dump in dumps:
        if dump.taps["logits"].shape[1] != params["vocab_size"]:
            sys.exit("%s has logits of %d ids, the model has %d; it is of another model" % (
                dump.path, dump.taps["logits"].shape[1], params["vocab_size"]))
    results = []
    for dtype, attention in ((torch.float32, "eager"), (torch.bfloat16, args.attention)):
        begin = time.time()
        model, _ = hf_map.build(params, weights, args.device, dtype, attention)
        results.append([dump.run(model, dtype) for dump in dumps])
        del model
        gc.collect()
        if args.device == "cuda":
            torch.cuda.empty_cache()
        print("transformers in %s, %s attention: %.1f s" % (dtype, attention, time.time() - begin), flush=True)
    tables = [compare(dump, oracle, half, args.margin) for dump, oracle, half in zip(dumps, *results)]
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"model": args.model, "weights": kinds, "margin": args.margin, "attention_bf16": args.attention,
                       "device": torch.cuda.get_device_name(0) if args.device == "cuda" else "cpu",
                       "torch": torch.__version__, "results": [table for table, _ in tables]}, file, indent=1)
    bad = sum(not ok for _, ok in tables)
    print("\n%d of %d ok" % (len(tables) - bad, len(tables)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
