"""Decodes the demo clips with transformers (fp32) and compares every token with tests/golden/demo_golden.safetensors.

usage: check_demo_transformers.py [REPOSITORY]     needs torch, transformers with VoxtralRealtime, safetensors
A token may differ where the reference's margin is below 1e-3. Exit status 1 on any other difference.
"""
import os
import sys
import wave

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import VoxtralRealtimeFeatureExtractor

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools/reference"))
import hf_map
import voxtral_numpy

torch.backends.cuda.matmul.allow_tf32 = False
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main():
    model, config = hf_map.load(os.path.join(ROOT, "models/demo"), DEVICE)
    reference = voxtral_numpy.Model(os.path.join(ROOT, "models/demo"))
    extractor = VoxtralRealtimeFeatureExtractor()
    golden = load_file(os.path.join(ROOT, "tests/golden/demo_golden.safetensors"))
    bad = 0
    for key in sorted(k[:-7] for k in golden if k.endswith(".tokens")):
        clip, delay = key.rsplit(".d", 1)
        with wave.open(os.path.join(ROOT, "models/demo/clips", clip + ".wav")) as file:
            pcm = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768
        padded = reference.pad_audio(pcm, int(delay))
        with torch.no_grad():
            mel = extractor._torch_extract_fbank_features(torch.from_numpy(padded)[None]).to(DEVICE)
            encoded = model.model.audio_tower(input_features=mel).last_hidden_state
            embeds = model.model.multi_modal_projector(encoded.reshape(1, -1, 4 * encoded.shape[-1]))
            ids, _ = hf_map.greedy(model, config, embeds, int(delay))
        want = golden[key + ".tokens"].tolist()
        first = next((i for i, (a, b) in enumerate(zip(ids, want)) if a != b), None)
        near = first is not None and float(golden[key + ".margin"][first]) < 1e-3
        same = len(ids) == len(want) and (first is None or near)
        bad += not same
        print("%-24s %3d tokens %s" % (key, len(want), "equal" if first is None and same else "near tie at %d" % first if same else
                                       "DIFFERENT (%d, first at %s)" % (len(ids), first)))
    print("%d of 14 different" % bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
