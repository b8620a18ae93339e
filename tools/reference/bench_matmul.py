"""bf16 products of torch on one GPU, to stand beside gpu_chain and gpu_offline: the peak (8192 x 8192 x 8192), then gpu_chain's
shapes over 64 different matrices in one CUDA graph.
usage: bench_matmul.py [ROWS ...]      rows of the chains, default 1024; prints JSON, one object per line
"""
import json
import sys

import torch

SHAPES = [(3072, 9216), (18432, 3072), (6144, 3072), (3072, 4096), (10240, 1280), (1280, 5120)]  # outputs, inputs


def median_ms(run, count):
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(7):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / count)
    return sorted(times)[3]


def values(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def chain_ms(rows, outputs, inputs, matrices=64):
    x, weights = values(rows, inputs), [values(outputs, inputs) * inputs**-0.5 for _ in range(matrices)]

    def run():
        for weight in weights:
            torch.nn.functional.linear(x, weight)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return median_ms(graph.replay, 3) / matrices


with torch.inference_mode():
    n = 8192
    a, b = values(n, n), values(n, n)
    out = torch.empty_like(a)
    print(json.dumps({"torch_bf16_peak_TFLOPs": round(2 * n**3 / median_ms(lambda: torch.matmul(a, b.t(), out=out), 20) / 1e9, 1)}), flush=True)
    for rows in [int(text) for text in sys.argv[1:]] or [1024]:
        for outputs, inputs in SHAPES:
            ms = chain_ms(rows, outputs, inputs)
            print(json.dumps({"torch_chain": f"{outputs}x{inputs}", "format": "bf16", "rows": rows, "us_per_product": round(ms * 1000, 2),
                              "TBps": round(2 * outputs * inputs / ms / 1e9, 3), "TFLOPs": round(2 * outputs * inputs * rows / ms / 1e9, 1)}), flush=True)
