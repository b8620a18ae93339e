"""What the command line tests share: running the program, building WAV bytes by hand, reference tokens, word error rate.

Standard library only. The program under test is named by the environment variable VOXRT_BIN.
"""
import array
import json
import math
import os
import random
import re
import struct
import subprocess
import tempfile
import unittest
import wave
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CLIPS = ROOT / "models/demo/clips"
GOLDEN = ROOT / "tests/golden"
VOXRT = os.environ.get("VOXRT_BIN", str(ROOT / "build/release/bin/voxrt"))
RATE = 16000
TICK = 1280
# Sanitizer builds are slower; no test asserts a speed.
TIMEOUT_S = float(os.environ.get("VOXRT_E2E_TIMEOUT_S", "120"))

OK, SOME_FAILED, USAGE, MODEL, INPUT, INTERRUPTED = 0, 1, 2, 3, 4, 130


def run(*args, stdin=b"", timeout=TIMEOUT_S, **kwargs):
    """Runs voxrt to its end; returns the completed process with bytes in stdout and stderr."""
    kwargs.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([VOXRT, *args], input=stdin, stderr=subprocess.PIPE, timeout=timeout, **kwargs)


def start(*args, **kwargs):
    """Starts voxrt with pipes on all three streams."""
    return subprocess.Popen([VOXRT, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)


def clips():
    """The bundled clips: name -> {"text", "word_end_s", ...}."""
    return {entry["file"].removesuffix(".wav"): entry for entry in json.loads((CLIPS / "clips.json").read_text())}


def clip_path(name):
    return str(CLIPS / f"{name}.wav")


def clip_pcm(name):
    """The samples of a clip as an array of int16."""
    with wave.open(clip_path(name)) as clip:
        assert (clip.getframerate(), clip.getnchannels(), clip.getsampwidth()) == (RATE, 1, 2)
        return array.array("h", clip.readframes(clip.getnframes()))


def golden_texts():
    return json.loads((GOLDEN / "demo_golden.json").read_text())


def golden_tensors():
    """demo_golden.safetensors as name -> list of numbers."""
    data = (GOLDEN / "demo_golden.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = array.array({"I32": "i", "F32": "f"}[entry["dtype"]], data[begin:end]).tolist()
    return tensors


def words(text):
    """As WER is defined here: lower case; everything but letters, digits, apostrophe and space removed."""
    return "".join(c for c in text.lower() if c.isalnum() or c in "' ").split()


def word_errors(reference, hypothesis):
    """Least number of substitutions, insertions and deletions between the words of two texts."""
    reference, hypothesis = words(reference), words(hypothesis)
    row = list(range(len(hypothesis) + 1))
    for i, expected in enumerate(reference, 1):
        previous, row[0] = row[0], i
        for j, found in enumerate(hypothesis, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (expected != found))
    return row[-1]


def chunk(name, body, size=None, pad=True):
    """A RIFF chunk; `size` may lie."""
    return name + struct.pack("<I", len(body) if size is None else size) + body + (b"\0" if pad and len(body) % 2 else b"")


def fmt_chunk(tag=1, channels=1, rate=RATE, bits=16, extra=None):
    block = channels * bits // 8
    body = struct.pack("<HHIIHH", tag, channels, rate, rate * block, block, bits)
    return chunk(b"fmt ", body + (b"" if extra is None else extra))


def riff(*chunks, size=None):
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body) if size is None else size) + body


def wav(data, **fmt):
    return riff(fmt_chunk(**fmt), chunk(b"data", data))


def pcm16(samples):
    return array.array("h", (max(-32768, min(32767, int(round(s)))) for s in samples)).tobytes()


def silence(seconds):
    return bytes(2 * int(seconds * RATE))


def noise(seconds, dbfs, seed=1):
    source = random.Random(seed)
    scale = 32768 * 10 ** (dbfs / 20)
    return pcm16(source.gauss(0, 1) * scale for _ in range(int(seconds * RATE)))


def tone(seconds, hz, dbfs):
    scale = 32768 * 10 ** (dbfs / 20) * math.sqrt(2)
    return pcm16(scale * math.sin(2 * math.pi * hz * i / RATE) for i in range(int(seconds * RATE)))


def json_lines(output):
    return [json.loads(line) for line in output.decode("utf-8").splitlines()]


CUE = re.compile(r"(\d{2,}):(\d\d):(\d\d)[,.](\d\d\d) --> (\d{2,}):(\d\d):(\d\d)[,.](\d\d\d)")


def cues(text):
    """[(start_ms, end_ms)] of SRT or VTT text."""
    out = []
    for match in CUE.finditer(text):
        n = [int(group) for group in match.groups()]
        out.append(tuple(((n[i] * 60 + n[i + 1]) * 60 + n[i + 2]) * 1000 + n[i + 3] for i in (0, 4)))
    return out


class CliTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def assert_exit(self, process, code):
        self.assertEqual(process.returncode, code, f"stderr: {process.stderr!r}")

    def assert_one_line_error(self, process, code):
        """The exit code, nothing on standard output, and a single error line."""
        self.assert_exit(process, code)
        self.assertEqual(process.stdout or b"", b"")
        lines = [line for line in process.stderr.splitlines() if b"error" in line]
        self.assertEqual(len(lines), 1, process.stderr)

    def text(self, *args, stdin=b""):
        process = run("transcribe", "--quiet", *args, stdin=stdin)
        self.assert_exit(process, OK)
        self.assertEqual(process.stderr, b"")
        self.assertTrue(process.stdout.endswith(b"\n"))
        return process.stdout.decode("utf-8")[:-1]

    def tokens(self, *args, stdin=b""):
        return [int(token) for token in self.text("--tokens", *args, stdin=stdin).split()]


def main():
    unittest.main(verbosity=2)
