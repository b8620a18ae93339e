"""voxrt export and voxrt pull as users run them: the artifact transcribes, bad flags cost nothing, kill -9 leaves no half file."""
import hashlib
import resource
import shutil
import signal
import subprocess
import sys
import time

from support import *

MODEL = str(ROOT / "models/demo")
CLIP = "flite_slt_1"
MODEL_ERROR = 3
RECIPE = ("--qlinear", "8da4w", "--qlinear-group-size", "32", "--qlinear-encoder", "8da8w", "--qembedding", "8w", "--qhead", "8w")


def header_of(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))


class ExportTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="voxrt_export_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def export(self, *args):
        return run("export", "--model", MODEL, *args)

    def check(self, process, code=OK):
        self.assertEqual(process.returncode, code, process.stderr.decode())

    def test_artifact_transcribes_and_says_what_it_is(self):
        out = self.folder / "a.safetensors"
        process = self.export("--output", str(out), *RECIPE, "--report", str(self.folder / "report.json"), "--eval", str(CLIPS))
        self.check(process)
        self.assertRegex(process.stdout.decode(), r"word error rate over 11 clips \(198 words\): 8\.\d+ % before")
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual(report["artifact_bytes"], out.stat().st_size)
        self.assertEqual(report["eval"]["before"]["errors"], 17)
        self.assertLess(out.stat().st_size, 14_500_000)
        metadata = header_of(out)["__metadata__"]
        self.assertEqual(metadata["voxrt.artifact"], "1")
        self.assertIn("--qlinear-group-size 32", metadata["voxrt.command"])
        source = json.loads(metadata["voxrt.source"])
        weights = next(entry for entry in source if entry["file"] == "consolidated.safetensors")
        self.assertEqual(weights["sha256"], hashlib.sha256((ROOT / "models/demo/consolidated.safetensors").read_bytes()).hexdigest())
        heard = run("transcribe", "-q", "--model", str(out), clip_path(CLIP))
        self.check(heard)
        self.assertLessEqual(word_errors(clips()[CLIP]["text"], heard.stdout.decode()), 4)
        self.check(run("inspect", str(out)))

    def test_same_command_same_bytes_and_manifest_pair(self):
        for name in ("a", "b"):
            self.check(self.export("--output-dir", str(self.folder / name), "--qlinear", "4w", "--qlinear-encoder", "4w"))
        a, b = ((self.folder / name / "model.safetensors").read_bytes() for name in ("a", "b"))
        self.assertTrue(a == b)
        self.check(self.export("--output", str(self.folder / "m.safetensors"), "--data-path", "w.data", "--qlinear", "8w"))
        self.assertTrue((self.folder / "w.data").exists())
        (self.folder / "elsewhere").mkdir()
        moved = (self.folder / "w.data").rename(self.folder / "elsewhere/w.data")
        lost = run("transcribe", "-q", "--model", str(self.folder / "m.safetensors"), clip_path(CLIP))
        self.assertNotEqual(lost.returncode, OK)
        self.assertIn("--data-path", lost.stderr.decode())
        self.check(run("transcribe", "-q", "--model", str(self.folder / "m.safetensors"), "--data-path", str(moved), clip_path(CLIP)))

    def test_the_head_scan_gives_the_same_tokens_and_needs_a_float_head(self):
        clip = clip_path(CLIP)
        floats, codes = str(self.folder / "none.safetensors"), str(self.folder / "8w.safetensors")
        self.check(self.export("--output", floats, "--qlinear", "8da4w", "--qlinear-encoder", "8da4w", "--qembedding", "8w", "--qhead", "none"))
        self.check(self.export("--output", codes, "--qlinear", "8w"))
        for model in (MODEL, floats):
            whole, scanned = (run("transcribe", "-q", "--tokens", "--model", model, *options, clip) for options in ((), ("--head-scan",)))
            self.check(whole)
            self.check(scanned)
            self.assertEqual(scanned.stdout, whole.stdout)
        for options, words_ in ((("--model", codes), "this one is 8w; leave it out"), (("--backend", "ref"), "use backend cpu or leave it out")):
            refused = run("transcribe", "--head-scan", *options, clip)
            self.check(refused, USAGE)
            self.assertIn(words_, refused.stderr.decode())

    def test_bad_combinations_are_refused_in_one_line_before_any_work(self):
        out = self.folder / "x.safetensors"
        for args, words_ in (
            (("--backend", "cuda", "--dtype", "fp32"), "use --dtype bf16"),
            (("--qlinear-packing-format", "tile_packed_to_4d"), "--qlinear 4w"),
            (("--backend", "cuda", "--qlinear", "8w", "--qlinear-packing-format", "tile_packed_to_4d"), "needs --qlinear 4w"),
            (("--qlinear", "4w", "--qlinear-packing-format", "tile_packed_to_4d"), "add --backend cuda"),
            (("--qlinear", "4w", "--qlinear-group-size", "100"), "use 32, 64, 128 or 256"),
            (("--qlinear", "4w", "--qlinear-group-size", "0"), "needs 8 bits"),
            (("--qlinear", "nvfp4"), "use 4w or 8da4w"),
            (("--delay-tokens", "31"), "use 1 to 30"),
            (("--sliding-window", "129"), "window of 128"),
            (("--sliding-window", "0"), "use 7 or more"),
            (("--sliding-window", "1"), "use 7 or more"),
            (("--sliding-window", "12", "--delay-tokens", "12"), "use 13 or more"),
            (("--max-enc-len", "0"), "use 4 or more"),
            (("--max-enc-len", "3"), "use 4 or more"),
            (("--model", ""), "--model"),
            (("--data-path", ""), "--data-path"),
            (("--output-dir", "y"), "use one of them"),
        ):
            with self.subTest(args=args):
                process = self.export("--output", str(out), *args)
                self.assertEqual(process.returncode, USAGE, process.stderr)
                self.assertEqual(len(process.stderr.decode().strip().splitlines()), 1, process.stderr)
                self.assertIn(words_, process.stderr.decode())
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_an_empty_output_is_refused(self):
        for option in ("-o", "--output-dir"):
            with self.subTest(option=option):
                process = subprocess.run([VOXRT, "export", "-m", MODEL, option, ""], capture_output=True, cwd=self.folder, timeout=TIMEOUT_S)
                self.check(process, USAGE)
                self.assertEqual(process.stderr.count(b"\n"), 1, process.stderr)
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_outputs_that_meet_in_one_file_are_refused(self):
        def inside(*args):
            return subprocess.run([VOXRT, "export", "-m", MODEL, "--qlinear", "4w", *args], capture_output=True, cwd=self.folder, timeout=TIMEOUT_S)

        for args in (("-o", "a", "--data-path", "./a"), ("-o", "a", "--data-path", "a"), ("-o", "a", "--report", "./a"),
                     ("-o", "a", "--data-path", "b", "--report", str(self.folder / "b")), ("-o", "a", "--data-path", "a.part")):
            with self.subTest(args=args):
                process = inside(*args)
                self.check(process, USAGE)
                self.assertEqual(process.stderr.count(b"\n"), 1, process.stderr)
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_place_where_an_output_cannot_be_costs_no_work(self):
        for args in (("-o", str(self.folder / "a"), "--report", str(self.folder / "none/r.json")),
                     ("-o", str(self.folder / "none/m"), "--data-path", str(self.folder / "w.data"))):
            with self.subTest(args=args):
                process = self.export(*args, "--qlinear", "4w")
                self.check(process, SOME_FAILED)
                self.assertEqual(process.stderr.count(b"\n"), 1, process.stderr)
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_clips_and_what_a_link_names_are_not_overwritten(self):
        clips_, link = self.folder / "clips", self.folder / "a.part"
        clips_.mkdir()
        (clips_ / "clips.json").write_text("[]")
        precious = self.folder / "precious"
        precious.write_text("x")
        link.symlink_to(precious)
        self.check(self.export("-o", str(clips_ / "clips.json"), "--qlinear", "4w", "--eval", str(clips_)), USAGE)
        self.check(self.export("-o", str(self.folder / "a"), "--qlinear", "4w"), SOME_FAILED)
        self.assertEqual((precious.read_text(), (clips_ / "clips.json").read_text()), ("x", "[]"))

    def test_a_symbolic_link_is_replaced_and_its_target_stays(self):
        target, link = self.folder / "target", self.folder / "link"
        target.write_bytes(b"x")
        link.symlink_to(target)
        self.check(self.export("-o", str(link), "--qlinear", "4w"))
        self.assertEqual((target.read_bytes(), link.is_symlink()), (b"x", False))
        self.check(run("inspect", str(link)))

    def test_the_second_of_two_exports_to_one_place_is_refused_or_waits_for_none(self):
        out = self.folder / "o.safetensors"
        both = [start("export", "-m", MODEL, "-o", str(out), "--data-path", "o.data", "--qlinear", "4w", "-q", "--threads", "1") for _ in range(2)]
        codes = []
        for process in both:
            _, errors = process.communicate(timeout=TIMEOUT_S)
            codes.append(process.returncode)
            self.assertIn(errors.count(b"\n"), (0, 1), errors)
        self.assertIn(OK, codes)
        self.assertTrue(set(codes) <= {OK, SOME_FAILED}, codes)
        self.check(run("inspect", "--verify", str(out)))
        self.assertEqual(list(self.folder.glob("*.part")), [])

    def test_the_summary_counts_the_bytes_of_a_tied_head_once(self):
        report = self.folder / "r.json"
        process = self.export("--output", str(self.folder / "t.safetensors"), "--qlinear", "4w", "--qembedding", "8w", "--report", str(report))
        self.check(process)
        stored = (ROOT / "models/demo/consolidated.safetensors").stat().st_size
        self.assertLessEqual(json.loads(report.read_text())["source_bytes"], stored)
        self.assertIn("from %.1f MB" % (json.loads(report.read_text())["source_bytes"] * 1e-6), process.stderr.decode())

    def test_a_model_that_is_not_there_is_a_model_error_and_quiet_means_silent(self):
        process = run("export", "--model", str(self.folder / "absent"), "--output", str(self.folder / "x.safetensors"))
        self.check(process, MODEL_ERROR)
        self.assertEqual(len(process.stderr.decode().strip().splitlines()), 1, process.stderr)
        process = self.export("--output", str(self.folder / "x.safetensors"), "--qlinear", "8w", "-q")
        self.check(process)
        self.assertEqual((process.stdout, process.stderr), (b"", b""))

    def test_nothing_that_is_read_and_no_device_is_replaced(self):
        model = self.folder / "model"
        shutil.copytree(MODEL, model)
        weights, other = model / "consolidated.safetensors", str(self.folder / "a.safetensors")
        before = weights.read_bytes()
        for options in (("--output", str(weights)), ("--output", str(model / ".." / "model" / "tekken.json")),
                        ("--output", other, "--data-path", str(weights)), ("--output", other, "--report", str(weights)),
                        ("--output", "/dev/full")):
            with self.subTest(options=options):
                process = run("export", "--model", str(model), "--qlinear", "4w", *options)
                self.check(process, USAGE)
                self.assertEqual(process.stderr.count(b"\n"), 1, process.stderr)
        self.assertTrue(weights.read_bytes() == before)
        self.assertFalse(Path("/dev/full").is_file())

    def test_the_delay_recorded_in_an_artifact_is_its_default(self):
        out = str(self.folder / "a.safetensors")
        self.check(self.export("--output", out, "--qlinear", "8w", "--delay-tokens", "12"))
        for options, delay_ms in (((), 960), (("--delay-ms", "480"), 480)):
            process = run("transcribe", "-q", "--json", "--model", out, *options, clip_path(CLIP))
            self.check(process)
            self.assertEqual(json.loads(process.stdout.splitlines()[-1])["delay_ms"], delay_ms)

    def test_a_flipped_bit_is_found_by_inspect_verify(self):
        out = self.folder / "v.safetensors"
        pair = self.folder / "p.safetensors"
        self.check(self.export("--output", str(out), "--qlinear", "4w"))
        self.check(self.export("--output", str(pair), "--data-path", "p.data", "--qlinear", "4w"))
        for whole in (out, pair):
            process = run("inspect", "--verify", str(whole))
            self.check(process)
            self.assertRegex(process.stdout.decode(), r"(?m)^verified +true$")
        for named, damaged in ((out, out), (pair, self.folder / "p.data")):
            content = bytearray(damaged.read_bytes())
            content[len(content) // 2] ^= 0x10
            damaged.write_bytes(content)
            self.check(run("inspect", str(named)))  # codes of any value are valid: the structure says nothing
            process = run("inspect", "--verify", str(named))
            self.check(process, MODEL_ERROR)
            self.assertEqual(len(process.stderr.decode().strip().splitlines()), 1, process.stderr)
            self.assertIn("damaged", process.stderr.decode())
            self.assertNotIn("verified", process.stdout.decode())
            quiet = run("inspect", "-q", "--verify", str(named))
            self.check(quiet, MODEL_ERROR)
            self.assertEqual((quiet.stdout, quiet.stderr), (b"", process.stderr))
        self.check(run("inspect", "--verify", MODEL), MODEL_ERROR)

    def test_quiet_verify_of_a_whole_artifact_says_nothing(self):
        out = self.folder / "v.safetensors"
        self.check(self.export("--output", str(out), "--qlinear", "4w"))
        process = run("inspect", "-q", "--verify", str(out))
        self.check(process)
        self.assertEqual((process.stdout, process.stderr), (b"", b""))

    def test_a_damaged_artifact_is_to_be_exported_again(self):
        out = self.folder / "d.safetensors"
        self.check(self.export("--output", str(out), "--qlinear", "4w"))
        whole = out.read_bytes()
        (length,) = struct.unpack_from("<Q", whole)
        norm = header_of(out)["norm.weight"]["data_offsets"][0] + 8 + length
        for damaged in (whole[:-1], whole + b"x", whole[:1000], whole[:8 + length - 40] + b"\1" + whole[8 + length - 39:],
                        whole[:norm] + b"\xff\xff" + whole[norm + 2:]):
            out.write_bytes(damaged)
            process = run("transcribe", "-q", "-m", str(out), clip_path(CLIP))
            self.check(process, MODEL_ERROR)
            self.assertIn("export it again", process.stderr.decode())
            self.assertNotIn("download", process.stderr.decode())

    def test_a_limit_of_file_size_is_one_line_and_leaves_nothing(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        out = self.folder / "f.safetensors"
        process = run("export", "--model", MODEL, "--output", str(out), "--qlinear", "8w", preexec_fn=limit)
        self.check(process, SOME_FAILED)
        self.assertEqual(len(process.stderr.decode().strip().splitlines()), 1, process.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_kill_leaves_no_half_artifact_and_the_next_export_works(self):
        out = self.folder / "k.safetensors"
        for _ in range(5):
            process = start("export", "--model", MODEL, "--output", str(out), "--qlinear", "4w", "--qlinear-encoder", "4w", "--threads", "1")
            deadline = time.monotonic() + TIMEOUT_S
            while process.poll() is None and not list(self.folder.glob("*.part")) and time.monotonic() < deadline:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if out.exists():  # it was faster: then it is whole
                self.check(run("inspect", str(out)))
                out.unlink()
        self.check(self.export("--output", str(out), "--qlinear", "4w"))
        self.check(run("inspect", str(out)))
        self.assertEqual(list(self.folder.glob("*.part")), [])


class PullTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="voxrt_pull_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        if run("pull", "--help").returncode != OK:
            self.skipTest("built without voxrt pull")
        self.server = subprocess.Popen([sys.executable, "-B", str(ROOT / "src/hub/testdata/bad_hub.py")], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        self.addCleanup(self.server.communicate)
        self.environment = dict(os.environ, HF_ENDPOINT="http://127.0.0.1:%d" % int(self.server.stdout.readline()), HF_TOKEN="secret")

    def pull(self, owner):
        return run("pull", owner + "/x", "--output-dir", str(self.folder / "m"), env=self.environment)

    def test_mirror_and_token_come_from_the_environment(self):
        process = self.pull("token")
        self.assertEqual(process.returncode, OK, process.stderr)
        self.assertEqual(process.stdout.decode().strip(), str(self.folder / "m"))
        self.assertEqual((self.folder / "m/consolidated.safetensors").stat().st_size, 1000003)

    def test_damage_and_absence_are_told_apart_from_success(self):
        process = self.pull("damaged")
        self.assertEqual(process.returncode, INPUT)
        self.assertIn("damaged", process.stderr.decode())
        self.assertFalse((self.folder / "m/consolidated.safetensors").exists())
        self.assertEqual(self.pull("absent").returncode, INPUT)
        self.assertEqual(run("pull", "noslash", env=self.environment).returncode, USAGE)

    def test_a_mirror_that_is_no_address_is_named_by_its_variable(self):
        process = run("pull", "a/b", "--output-dir", str(self.folder / "m"), env=dict(self.environment, HF_ENDPOINT="foo"))
        self.assertEqual(process.returncode, USAGE)
        self.assertIn("HF_ENDPOINT", process.stderr.decode())
        self.assertEqual(process.stderr.count(b"\n"), 1)

    def test_a_disk_that_takes_no_more_is_an_output_error(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        process = run("pull", "token/x", "--output-dir", str(self.folder / "m"), env=self.environment, preexec_fn=limit)
        self.assertEqual(process.returncode, SOME_FAILED, process.stderr)
        self.assertEqual(process.stderr.count(b"\n"), 1, process.stderr)


if __name__ == "__main__":
    unittest.main()
