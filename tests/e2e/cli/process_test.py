"""The program as a process: streams, signals, exit codes, batches, file names, help, completion."""
import pty
import resource
import select
import signal
import sys
import time

from support import *

CLIP = "flite_slt_0"
RAW = ("--format", "s16le", "-")


def expected_text(name=CLIP):
    return golden_texts()[f"{name}.d6"].strip()


class LiveTest(CliTest):
    """A pipe that stays open."""

    def start(self, *args):
        process = start("transcribe", "-q", *args, *RAW)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def read_until(self, process, wanted):
        """Reads output until `wanted` is in it; the input pipe is still open meanwhile."""
        output = b""
        while wanted not in output:
            ready, _, _ = select.select([process.stdout], [], [], TIMEOUT_S)
            self.assertTrue(ready, f"no more text; so far {output!r}")
            piece = os.read(process.stdout.fileno(), 65536)
            self.assertTrue(piece, f"the program ended; so far {output!r}")
            output += piece
        return output

    def test_text_appears_while_the_input_pauses(self):
        process = self.start()
        process.stdin.write(clip_pcm(CLIP).tobytes() + silence(1))
        process.stdin.flush()
        output = self.read_until(process, b"of that.")
        self.assertEqual(output.decode(), expected_text())
        # Asleep while nothing comes: far less processor time than time.
        def processor_seconds():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        before = processor_seconds()
        time.sleep(1.0)
        self.assertLess(processor_seconds() - before, 0.5)
        process.stdin.close()
        self.assertEqual(process.stdout.read(), b"\n")
        self.assertEqual(process.wait(TIMEOUT_S), OK)

    def test_interrupt_prints_the_rest_and_exits_130(self):
        process = self.start()
        # Without the trailing second the last words still wait for their delay.
        process.stdin.write(clip_pcm(CLIP).tobytes())
        process.stdin.flush()
        output = self.read_until(process, b"like")
        process.send_signal(signal.SIGINT)
        output += process.stdout.read()
        self.assertEqual(process.wait(TIMEOUT_S), INTERRUPTED)
        self.assertTrue(output.endswith(b"\n"))
        self.assertTrue(expected_text().startswith(output.decode().strip()[:60]))

    def test_interrupt_before_any_input(self):
        process = start("transcribe", "-v", *RAW)
        self.addCleanup(process.kill)
        # The model has been loaded: it waits for input.
        line = b""
        while b"loaded" not in line:
            line = process.stderr.readline()
            self.assertTrue(line)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        process.stderr.read()
        self.assertEqual(process.wait(TIMEOUT_S), INTERRUPTED)
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()

    def test_second_interrupt_ends_at_once(self):
        # The scalar backend takes long over what is pending after the first.
        process = self.start("--backend", "ref")
        process.stdin.write(clip_pcm(CLIP).tobytes() * 3)
        process.stdin.flush()
        self.read_until(process, b"Maybe")
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)  # two signals at once are one
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(TIMEOUT_S), INTERRUPTED)

    def test_a_reader_that_leaves_ends_the_program_quietly(self):
        process = self.start()
        process.stdout.close()
        process.stdin.write(clip_pcm(CLIP).tobytes() + silence(1))
        process.stdin.flush()
        self.assertEqual(process.wait(TIMEOUT_S), SOME_FAILED)
        self.assertEqual(process.stderr.read(), b"")


class OutputTest(CliTest):
    def test_nothing_but_the_result_is_on_standard_output(self):
        process = run("transcribe", clip_path(CLIP))
        self.assert_exit(process, OK)
        self.assertEqual(process.stdout.decode(), expected_text() + "\n")
        notes = process.stderr.decode().splitlines()
        self.assertEqual(len(notes), 1, notes)
        self.assertIn("demo checkpoint", notes[0])
        self.assertIn("synthetic", notes[0])

    def test_a_full_device_is_an_error(self):
        with open("/dev/full", "wb") as full:
            process = run("transcribe", "-q", clip_path(CLIP), stdout=full)
        self.assert_one_line_error(process, SOME_FAILED)
        self.assertIn(b"No space left", process.stderr)

    def test_scripts_and_manual_say_when_they_cannot_be_written(self):
        for args in (("completion", "bash"), ("man",)):
            with open("/dev/full", "wb") as full:
                process = run(*args, stdout=full)
            self.assert_one_line_error(process, SOME_FAILED)
            self.assertIn(b"No space left", process.stderr)

    def test_a_limit_of_file_size_is_an_error_and_leaves_nothing(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
        process = run("transcribe", "-q", "-o", str(self.folder / "out"), clip_path(CLIP), preexec_fn=limit)
        self.assert_one_line_error(process, SOME_FAILED)
        self.assertIn(b"File too large", process.stderr)
        self.assertEqual(list((self.folder / "out").iterdir()), [])

    def test_closed_standard_streams(self):
        code = "import os,sys\nfor d in map(int, sys.argv[1].split(',')): os.close(d)\nos.execv(sys.argv[2], sys.argv[2:])"
        for descriptors, expected in (("0", OK), ("1", SOME_FAILED), ("2", OK), ("0,1,2", SOME_FAILED)):
            with self.subTest(closed=descriptors):
                process = subprocess.run([sys.executable, "-c", code, descriptors, VOXRT, "transcribe", clip_path(CLIP)],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S)
                self.assertEqual(process.returncode, expected)

    def test_several_files_have_their_names_before_their_texts(self):
        first, second = clip_path(CLIP), clip_path("flite_slt_1")
        process = run("transcribe", "-q", first, second)
        self.assert_exit(process, OK)
        self.assertEqual(process.stdout.decode(), f"{first}: {expected_text()}\n{second}: {expected_text('flite_slt_1')}\n")

    def test_file_names_are_taken_and_printed_literally(self):
        audio = Path(clip_path(CLIP)).read_bytes()
        for name in (b"100%s%n%d.wav", b"caf\xe9 \xff.wav", b"--odd name.wav", "日本語.wav".encode(), b"a\nb.wav"):
            with self.subTest(name=name):
                path = os.path.join(os.fsencode(self.folder), name)
                with open(path, "wb") as file:
                    file.write(audio)
                process = run("transcribe", "-q", path, path)
                self.assert_exit(process, OK)
                self.assertEqual(process.stdout.count(path + b": " + expected_text().encode()), 2)
                for line in json_lines(run("transcribe", "-q", "--json", path).stdout):
                    self.assertEqual(line["file"].encode("utf-8", "replace").rpartition(b"/")[2][:1], name[:1])
                missing = run("transcribe", "-q", path + b"x")
                self.assert_exit(missing, INPUT)
                # A message is one line whatever the name holds: a control character in it is shown as a question mark.
                self.assertIn(path.replace(b"\n", b"?") + b"x", missing.stderr)
                self.assertEqual(missing.stderr.count(b"\n"), 1)


def screen_of(output, columns):
    """The rows that a terminal of this width shows after `output`: only what the program uses is understood."""
    rows, row, column = [[]], 0, 0
    pattern = re.compile(r"\x1b\[(\d*)([A-Za-z])|(.)", re.DOTALL)
    for number, command, character in pattern.findall(output.decode("utf-8")):
        count = int(number or 1)
        if command == "A":
            row -= count
        elif command == "C":
            column += count
        elif command == "K":
            del rows[row][column:]
        elif character == "\r":
            column = 0
        elif character == "\n":
            row += 1
        elif character:
            if column == columns:
                row, column = row + 1, 0
            rows += [[] for _ in range(row + 1 - len(rows))]
            rows[row] += [" "] * (column - len(rows[row]))
            rows[row][column : column + 1] = [character]
            column += 1
        rows += [[] for _ in range(row + 1 - len(rows))]
    return ["".join(cells) for cells in rows]


class TerminalTest(CliTest):
    def run_on_terminal(self, columns, *args):
        """Output of voxrt with all three streams on one terminal."""
        # The width is set before the program starts.
        code = ("import fcntl,os,struct,sys,termios\n"
                "fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack('HHHH', 24, int(sys.argv[1]), 0, 0))\n"
                "os.execv(sys.argv[2], sys.argv[2:])")
        pid, descriptor = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", code, str(columns), VOXRT, *args])
        output = b""
        while True:
            try:
                piece = os.read(descriptor, 65536)
            except OSError:  # the terminal is gone with the program
                break
            if not piece:
                break
            output += piece
        _, status = os.waitpid(pid, 0)
        os.close(descriptor)
        return output, os.waitstatus_to_exitcode(status)

    def test_text_and_status_line_share_a_terminal(self):
        # The text is longer than the terminal is wide; at 53 columns a line ends exactly with a piece.
        for columns in (40, 53, 200):
            with self.subTest(columns=columns):
                output, code = self.run_on_terminal(columns, "transcribe", "--streaming", "--color", "always", clip_path(CLIP))
                self.assertEqual(code, OK)
                shown = screen_of(output, columns)
                text = "".join(row.ljust(columns) for row in shown)
                self.assertEqual(text.count(expected_text()), 1, shown)
                self.assertEqual([row for row in shown if "real time" in row and "[" in row], [], "the status line is gone at the end")
                self.assertTrue(any("s of audio in" in row for row in shown) or columns < 100, shown)

    def test_quiet_prints_only_the_text(self):
        output, code = self.run_on_terminal(200, "transcribe", "-q", clip_path(CLIP))
        self.assertEqual((code, output.decode()), (OK, expected_text() + "\r\n"))


class BatchTest(CliTest):
    def test_bad_inputs_do_not_stop_good_ones(self):
        good = clip_path(CLIP)
        text = self.file("renamed.wav", b"this is text\n" * 100)
        missing = str(self.folder / "missing.wav")
        out = self.folder / "out"
        process = run("transcribe", "--output-dir", str(out), "--txt", "--json", "--srt", "--vtt", text, str(self.folder), missing, good)
        self.assert_exit(process, SOME_FAILED)
        self.assertEqual(process.stdout, b"")
        self.assertIn(b"1 of 4 inputs transcribed", process.stderr)
        self.assertEqual(process.stderr.count(b"error: "), 3)
        self.assertEqual(sorted(path.name for path in out.iterdir()), [f"{CLIP}.{e}" for e in ("jsonl", "srt", "txt", "vtt")])
        self.assertEqual((out / f"{CLIP}.txt").read_text(), expected_text() + "\n")
        self.assertTrue((out / f"{CLIP}.vtt").read_text().startswith("WEBVTT"))
        self.assertEqual(json_lines((out / f"{CLIP}.jsonl").read_bytes())[-1]["type"], "usage")

    def test_to_standard_output_too(self):
        text = self.file("renamed.wav", b"this is text\n" * 100)
        process = run("transcribe", "-q", text, clip_path(CLIP))
        self.assert_exit(process, SOME_FAILED)
        self.assertEqual(process.stdout.decode(), f"{clip_path(CLIP)}: {expected_text()}\n")

    def test_json_reports_the_failure_in_its_stream(self):
        text = self.file("renamed.wav", b"this is text\n" * 100)
        process = run("transcribe", "-q", "--json", text, clip_path(CLIP))
        self.assert_exit(process, SOME_FAILED)
        first = json_lines(process.stdout)[0]
        self.assertEqual((first["type"], first["event"], first["file"]), ("event", "error", text))
        self.assertIn("message", first)

    def test_equal_names_do_not_overwrite_each_other(self):
        copy = self.folder / "sub"
        copy.mkdir()
        (copy / f"{CLIP}.wav").write_bytes(wav(silence(1)))
        out = self.folder / "out"
        self.assert_exit(run("transcribe", "-q", "-o", str(out), clip_path(CLIP), str(copy / f"{CLIP}.wav")), OK)
        self.assertEqual((out / f"{CLIP}.txt").read_text(), expected_text() + "\n")
        self.assertEqual((out / f"{CLIP}-2.txt").read_text(), "\n")


class ExitCodeTest(CliTest):
    def test_wrong_use_is_2_with_one_line_and_a_hint(self):
        clip = clip_path(CLIP)
        for args in (
            (), ("nonsense",), ("transcribe",), ("transcribe", "--nonsense", clip), ("transcribe", "--delay-ms", "100", clip),
            ("transcribe", "--delay-ms", "0", clip), ("transcribe", "--delay-ms", "x", clip), ("transcribe", "--backend", "tpu", clip),
            ("transcribe", "--threads", "-1", clip), ("transcribe", "--srt", "--vtt", clip), ("transcribe", "--srt", clip, clip),
            ("transcribe", "-", "-"), ("transcribe", "--kv-type", "fp8", clip), ("transcribe", "--format", "s12", "-"),
            ("transcribe", "-q", "-v", clip), ("transcribe", "--temperature", "-1", clip), ("transcribe", "-m", "", clip),
            ("transcribe", "-o", "", clip), ("transcribe", "--data-path", "", clip), ("inspect", "--data-path", "", clip),
        ):
            with self.subTest(args=args):
                process = run(*args)
                self.assert_exit(process, USAGE)
                self.assertEqual(process.stdout, b"")
                self.assertEqual(len(process.stderr.splitlines()), 1, process.stderr)
                self.assertIn(b"--help", process.stderr)

    def test_a_delay_between_two_names_both(self):
        process = run("transcribe", "--delay-ms", "500", clip_path(CLIP))
        self.assertIn(b"480", process.stderr)
        self.assertIn(b"560", process.stderr)

    def test_a_bad_model_is_3(self):
        pointer = self.folder / "lfs"
        pointer.mkdir()
        for name in ("params.json", "tekken.json"):
            (pointer / name).write_bytes((ROOT / "models/demo" / name).read_bytes())
        (pointer / "consolidated.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        for model in (str(self.folder / "none"), str(self.folder), str(pointer), clip_path(CLIP)):
            with self.subTest(model=model):
                self.assert_one_line_error(run("transcribe", "-q", "--model", model, clip_path(CLIP)), MODEL)
        broken = run("inspect", "-q", "--json", str(pointer))
        self.assert_exit(broken, MODEL)
        self.assertEqual(len(broken.stderr.splitlines()), 1)

    def test_a_bad_input_is_4_without_loading_a_model(self):
        self.assert_one_line_error(run("transcribe", "-q", "--model", "/nonexistent", str(self.folder / "none.wav")), INPUT)


class DescribeTest(CliTest):
    def test_help_of_everything_is_on_standard_output(self):
        commands = ("transcribe", "listen", "inspect", "bench", "completion", "man")
        top = run("--help")
        self.assert_exit(top, OK)
        for command in commands:
            self.assertIn(command.encode(), top.stdout)
            process = run(command, "--help")
            self.assert_exit(process, OK)
            self.assertEqual(process.stderr, b"")
        self.assertRegex(run("--version").stdout, rb"^voxrt \d+\.\d+\.\d+")

    def test_completion_scripts_parse(self):
        bash = run("completion", "bash")
        self.assert_exit(bash, OK)
        check = b'\nCOMP_WORDS=(voxrt transcribe --kv-type ""); COMP_CWORD=3; _voxrt; echo "${COMPREPLY[@]}"'
        process = subprocess.run(["bash", "--norc", "-s"], input=bash.stdout + check, capture_output=True)
        self.assertEqual(process.stderr, b"")
        self.assertEqual(process.stdout.split(), [b"fp32", b"bf16", b"int8"])
        for shell in ("zsh", "fish"):
            self.assertIn(b"--delay-ms" if shell == "zsh" else b"delay-ms", run("completion", shell).stdout)

    def test_manual_page_names_every_command(self):
        page = run("man").stdout
        self.assertTrue(page.startswith(b".TH VOXRT 1"))
        for word in (b"transcribe", b"listen", b"EXIT STATUS"):
            self.assertIn(word, page)

    def test_inspect_describes_checkpoint_and_clip(self):
        (model,) = json_lines(run("inspect", "--json", str(ROOT / "models/demo")).stdout)
        self.assertEqual((model["parameters"], model["layout"], model["default_delay_ms"]), (14072832, "mistral", 480))
        self.assertEqual((model["config"]["encoder"]["layers"], model["config"]["decoder"]["window"]), (8, 128))
        self.assertGreater(model["caches"][0]["session_bytes"], 0)
        (clip,) = json_lines(run("inspect", "--json", clip_path(CLIP)).stdout)
        self.assertEqual((clip["container"], clip["codec"], clip["rate"], clip["channels"]), ("wav", "pcm_s16le", 16000, 1))
        self.assertAlmostEqual(clip["duration_s"], len(clip_pcm(CLIP)) / RATE, places=3)
        text = run("inspect", "--tensors", str(ROOT / "models/demo")).stdout.decode()
        self.assertIn("layers.0.attention.wq.weight", text)

    def test_bench_reports_every_figure(self):
        process = run("bench", "-q", "--json", "--seconds", "10", "--live-seconds", "10", "--threads", "1")
        self.assert_exit(process, OK)
        result = json.loads(process.stdout)
        for path in (("machine", "read_gb_per_s"), ("live", "p50_ms"), ("live", "p99_ms"), ("offline", "x_realtime"), ("memory", "peak_rss_bytes"),
                     ("stages", "mel_ms_per_tick"), ("stages", "encode_ms_per_tick_offline"), ("stages", "decode_ms_per_step"),
                     ("stages", "head_ms"), ("engine", "load_seconds")):
            self.assertGreater(result[path[0]][path[1]], 0, path)
        self.assertNotIn("nominal_gb_per_s", result["engine"])
        for rate in (result["live"]["weights"], result["stages"]["decode_step_weights"], result["stages"]["head_weights"]):
            self.assertAlmostEqual(rate["share_of_read"], rate["gb_per_s"] / result["machine"]["read_gb_per_s"], places=6)


if __name__ == "__main__":
    main()
