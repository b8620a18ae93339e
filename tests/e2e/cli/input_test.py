"""Inputs as they come: lying headers, every WAV variant, pipes in odd pieces, tiny lengths, damaged files, other containers."""
import shutil
import threading

from support import *

CLIP = "flite_slt_1"
PCM_GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")


class HeaderTest(CliTest):
    """Headers built by hand: the same tokens as the plain file, or one line that says why not."""

    @classmethod
    def setUpClass(cls):
        cls.samples = clip_pcm(CLIP)
        cls.data = cls.samples.tobytes()
        cls.expected = run("transcribe", "-q", "--tokens", clip_path(CLIP)).stdout

    def check(self, data, name="x.wav"):
        for args, stdin in (((self.file(name, data),), b""), (("-",), data)):
            process = run("transcribe", "-q", "--tokens", *args, stdin=stdin)
            self.assert_exit(process, OK)
            self.assertEqual(process.stdout, self.expected, args)

    def test_sizes_that_lie(self):
        fmt = fmt_chunk()
        for size in (0, 0xFFFFFFFF, 0x7FFFFFFF, len(self.data) + 1, len(self.data) + 2, len(self.data) + 1000):
            with self.subTest(size=size):
                self.check(riff(fmt, chunk(b"data", self.data, size=size), size=0 if size == 0 else 0xFFFFFFFF))

    def test_data_one_byte_short_in_the_header(self):
        process = run("transcribe", "-q", self.file("x.wav", riff(fmt_chunk(), chunk(b"data", self.data, size=len(self.data) - 1))))
        self.assert_exit(process, OK)
        self.assertEqual(process.stdout.decode().strip(), golden_texts()[f"{CLIP}.d6"].strip())

    def test_longer_fmt_chunks(self):
        for extra in (b"\0\0", b"\2\0\0\0"):
            self.check(riff(fmt_chunk(extra=extra), chunk(b"data", self.data)))

    def test_chunks_before_the_data(self):
        for extra in (
            chunk(b"LIST", b"INFOISFT\x04\0\0\0abc\0"),
            chunk(b"JUNK", bytes(28)),
            chunk(b"cue ", bytes(7)),
            chunk(b"bext", bytes(602)),
        ):
            self.check(riff(fmt_chunk(), extra, chunk(b"data", self.data)))
        self.check(riff(fmt_chunk(), chunk(b"data", self.data), chunk(b"LIST", b"INFO")))

    def test_extensible_16_and_24_bit_and_float(self):
        def extensible(bits, guid_tag):
            return fmt_chunk(tag=0xFFFE, bits=bits, extra=struct.pack("<HHI", 22, bits, 4) + struct.pack("<H", guid_tag) + PCM_GUID_TAIL)

        self.check(riff(extensible(16, 1), chunk(b"data", self.data)))
        self.check(riff(extensible(24, 1), chunk(b"data", b"".join(struct.pack("<i", s << 8)[:3] for s in self.samples))))
        self.check(riff(extensible(32, 3), chunk(b"data", array.array("f", (s / 32768 for s in self.samples)).tobytes())))

    def test_24_and_32_bit_integers_and_32_and_64_bit_floats(self):
        self.check(wav(b"".join(struct.pack("<i", s << 8)[:3] for s in self.samples), bits=24))
        self.check(wav(array.array("i", (s << 16 for s in self.samples)).tobytes(), bits=32))
        self.check(wav(array.array("f", (s / 32768 for s in self.samples)).tobytes(), tag=3, bits=32))
        self.check(wav(array.array("d", (s / 32768 for s in self.samples)).tobytes(), tag=3, bits=64))

    def test_two_equal_channels_are_the_one(self):
        self.check(wav(b"".join(struct.pack("<hh", s, s) for s in self.samples), channels=2))

    def test_8_bit_is_unsigned(self):
        text = self.text(self.file("x.wav", wav(bytes((s >> 8) + 128 for s in self.samples), bits=8)))
        self.assertLessEqual(word_errors(clips()[CLIP]["text"], text), 6, text)
        quiet = self.text(self.file("z.wav", wav(b"\x80" * 48000, bits=8)))
        self.assertEqual(quiet, "")

    def test_float_values_beyond_one_nan_and_infinity(self):
        values = array.array("f", (s / 32768 for s in self.samples))
        for at, value in ((1000, float("nan")), (2000, float("inf")), (3000, -float("inf")), (4000, 1e30)):
            values[at] = value
        process = run("transcribe", "-q", self.file("x.wav", wav(values.tobytes(), tag=3, bits=32)))
        if process.returncode == OK:
            self.assertLessEqual(word_errors(clips()[CLIP]["text"], process.stdout.decode()), 6)
        else:
            self.assert_one_line_error(process, INPUT)

    def test_audio_cut_short_gives_its_text_and_a_warning(self):
        whole = wav(self.data)
        for name, data, cut in (("half.wav", whole[:44 + len(self.data) // 2], True), ("whole.wav", whole, False),
                                ("unfinished.wav", whole[:40] + b"\xff" * 4 + whole[44:], False)):
            with self.subTest(name=name):
                process = run("transcribe", self.file(name, data))
                self.assertEqual(process.returncode, OK)
                self.assertTrue(process.stdout.strip())
                self.assertEqual(b"cut short" in process.stderr, cut, process.stderr)

    def test_a_result_does_not_replace_its_own_input(self):
        path = Path(self.file("clip.txt", wav(self.data)))
        process = run("transcribe", "-q", "--output-dir", str(path.parent), "--txt", str(path))
        self.assertEqual(process.returncode, 1)
        self.assertIn(b"would replace its own input", process.stderr)
        self.assertEqual(path.read_bytes(), wav(self.data))

    def test_inspect_does_not_wait_for_a_pipe(self):
        path = str(Path(self.file("x", b"")).parent / "pipe")
        os.mkfifo(path)
        process = run("inspect", path)
        self.assert_one_line_error(process, INPUT)
        os.rename(path, path + ".safetensors")  # named as a model: the same refusal
        model = run("inspect", path + ".safetensors")
        self.assert_one_line_error(model, INPUT)
        self.assertEqual(model.stderr.replace(b".safetensors", b""), process.stderr)

    def test_truncated_headers_end_in_one_line_or_in_nothing(self):
        data = wav(self.data[:64000])
        for length in (0, 1, 4, 11, 12, 16, 20, 35, 36, 40, 43):
            with self.subTest(length=length):
                process = run("transcribe", "-q", self.file("x.wav", data[:length]))
                if process.returncode == OK:
                    self.assertEqual(process.stdout, b"\n")
                else:
                    self.assert_one_line_error(process, INPUT)


class LengthTest(CliTest):
    def test_every_small_length_ends_well(self):
        for samples in (0, 1, 159, 160, 399, 400, 1279, 1280, 1281, 2560):
            with self.subTest(samples=samples):
                data = wav(bytes(2 * samples))
                tokens = self.tokens(self.file("x.wav", data))
                self.assertEqual(len(tokens), -(-samples // TICK) + 11)
                self.assertEqual(self.text("-", stdin=data), "")
                self.assertEqual(self.tokens("--format", "s16le", "-", stdin=bytes(2 * samples)), tokens)

    def test_an_odd_last_byte_of_raw_input_is_dropped(self):
        pcm = clip_pcm(CLIP).tobytes()
        options = ("--format", "s16le", "-")
        self.assertEqual(self.tokens(*options, stdin=pcm + b"\x55"), self.tokens(*options, stdin=pcm))


class PipeTest(CliTest):
    def setUp(self):
        super().setUp()
        self.pcm = clip_pcm(CLIP).tobytes()
        self.expected = self.tokens(clip_path(CLIP))

    def write_in_pieces(self, data, sizes, *args):
        process = start("transcribe", "-q", "--tokens", *args, "-")

        def write():
            at, piece = 0, 0
            descriptor = process.stdin.fileno()
            while at < len(data):
                at += os.write(descriptor, data[at : at + sizes[piece % len(sizes)]])
                piece += 1
            process.stdin.close()

        writer = threading.Thread(target=write)
        writer.start()
        output = process.stdout.read()
        writer.join()
        process.stderr.close()
        process.stdout.close()
        self.assertEqual(process.wait(TIMEOUT_S), OK)
        return [int(token) for token in output.split()]

    def test_single_bytes_give_the_same_tokens(self):
        self.assertEqual(self.write_in_pieces(wav(self.pcm), [1]), self.expected)

    def test_odd_pieces_give_the_same_tokens(self):
        for sizes in ([3], [999], [1, 2, 3, 5, 7, 4097]):
            self.assertEqual(self.write_in_pieces(self.pcm, sizes, "--format", "s16le"), self.expected)

    def test_raw_samples_that_look_like_control_characters(self):
        # 0x1A ends and 0x0D0A shrinks text files elsewhere.
        pcm = b"\x1a\x1a\x0d\x0a" * 640
        self.assertEqual(len(self.tokens("--format", "s16le", "-", stdin=pcm)), 1 + 11)

    def test_raw_formats_mean_the_same_samples(self):
        samples = clip_pcm(CLIP)
        for name, data in {
            "s16be": b"".join(struct.pack(">h", s) for s in samples),
            "s24le": b"".join(struct.pack("<i", s << 8)[:3] for s in samples),
            "s32le": array.array("i", (s << 16 for s in samples)).tobytes(),
            "f32le": array.array("f", (s / 32768 for s in samples)).tobytes(),
            "f64le": array.array("d", (s / 32768 for s in samples)).tobytes(),
        }.items():
            with self.subTest(name):
                self.assertEqual(self.tokens("--format", name, "-", stdin=data), self.expected)
        stereo = b"".join(struct.pack("<hh", s, s) for s in samples)
        self.assertEqual(self.tokens("--format", "s16le", "--channels", "2", "-", stdin=stereo), self.expected)

    def test_a_file_behind_a_redirection(self):
        with open(clip_path(CLIP), "rb") as clip:
            process = subprocess.run([VOXRT, "transcribe", "-q", "--tokens", "-"], stdin=clip, capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual([int(token) for token in process.stdout.split()], self.expected)


class DamagedTest(CliTest):
    def test_what_is_no_audio_is_said_in_one_line(self):
        for name, data in {
            "text.wav": b"this is not audio at all, just some words in a file\n" * 20,
            "page.mp3": b"<!DOCTYPE html><html><body>404</body></html>\n" * 20,
            "list.m3u8": b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n",
            "concat.txt": b"ffconcat version 1.0\nfile /etc/passwd\n",
            "random.ogg": random.Random(3).randbytes(5000),
        }.items():
            with self.subTest(name):
                self.assert_one_line_error(run("transcribe", "-q", self.file(name, data)), INPUT)
                self.assert_one_line_error(run("transcribe", "-q", "-", stdin=data), INPUT)

    def test_directories_and_missing_files_are_input_errors(self):
        self.assert_one_line_error(run("transcribe", "-q", str(self.folder)), INPUT)
        self.assert_one_line_error(run("transcribe", "-q", str(self.folder / "none.wav")), INPUT)


@unittest.skipUnless(shutil.which("ffmpeg"), "makes its inputs with the ffmpeg program")
class ContainerTest(CliTest):
    def convert(self, name, *options):
        path = self.folder / name
        subprocess.run(["ffmpeg", "-v", "error", "-y", "-i", clip_path(CLIP), *options, str(path)], check=True, stdin=subprocess.DEVNULL)
        return path

    def test_common_containers_from_file_and_pipe(self):
        expected = clips()[CLIP]["text"]
        if b"ffmpeg" not in run("--version").stdout and run("transcribe", "-q", str(self.convert("p.mp3"))).returncode != OK:
            self.skipTest("built without FFmpeg")
        for name in ("a.flac", "a.mp3", "a.ogg", "a.opus", "a.m4a", "a.webm", "a.aiff", "a.mka"):
            with self.subTest(name):
                path = self.convert(name)
                self.assertLessEqual(word_errors(expected, self.text(str(path))), 5)
                if name not in ("a.m4a", "a.aiff"):
                    self.assertLessEqual(word_errors(expected, self.text("-", stdin=path.read_bytes())), 5)

    def test_an_mp4_with_its_index_at_the_end_cannot_be_piped_and_says_so(self):
        data = self.convert("a.m4a").read_bytes()
        self.assertGreater(data.find(b"moov"), data.find(b"mdat"))
        self.assert_one_line_error(run("transcribe", "-q", "-", stdin=data), INPUT)

    def test_other_sample_rates(self):
        expected = clips()[CLIP]["text"]
        for rate in (8000, 11025, 22050, 44100, 48000, 96000):
            with self.subTest(rate=rate):
                text = self.text(str(self.convert("r.wav", "-ar", str(rate))))
                self.assertLessEqual(word_errors(expected, text), 4 if rate > 16000 else 10, text)


if __name__ == "__main__":
    main()
