"""tools/check_layers accepts the tree and finds planted violations with file and line."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_layers"


def run(root):
    result = subprocess.run([sys.executable, str(TOOL), str(root)], capture_output=True, text=True, check=False)
    return result.returncode, result.stderr


class CheckLayers(unittest.TestCase):
    def planted(self, path, text):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, path)
            file.parent.mkdir(parents=True)
            file.write_text(text, encoding="utf-8")
            return run(folder)

    def test_the_tree_obeys_its_table(self):
        self.assertEqual(run(ROOT), (0, ""))

    def test_an_upward_arrow_is_found_with_file_and_line(self):
        code, message = self.planted("src/backend/cpu/x.cc", '#include <vector>\n\n#include "model/decoder.h"\n')
        self.assertEqual(code, 1)
        self.assertIn("src/backend/cpu/x.cc:3: ", message)
        self.assertIn("model/decoder.h", message)

    def test_other_planted_violations_are_found(self):
        for path, include in (("src/model/encoder.cc", '"backend/cpu/cpu.h"'), ("src/backend/ref/x.cc", '"backend/cpu/cpu.h"'),
                              ("src/text/x.h", '"audio/mel.h"'), ("src/base/x.h", '"quant/dtype.h"'),
                              ("src/server/protocol/x.cc", "<boost/asio.hpp>"), ("src/backend/cuda/kernels/x.cu", '"base/check.h"'),
                              ("src/engine/x.cc", "<cuda_runtime.h>"), ("src/weights/x.cc", "<nlohmann/json.hpp>"),
                              ("src/newfolder/x.cc", '"base/check.h"'), ("src/model/x.cc", '"engine/engine.h"')):
            with self.subTest(path=path, include=include):
                code, message = self.planted(path, f"#include {include}\n")
                self.assertEqual(code, 1)
                self.assertIn(f"{path}:1: ", message)

    def test_downward_arrows_own_folder_and_test_support_pass(self):
        for path, include in (("src/backend/cpu/x.cc", '"backend/stream.h"'), ("src/backend/cpu/x.cc", "<hwy/highway.h>"),
                              ("src/server/http/x.cc", '"server/protocol/json.h"'), ("src/engine/x.cc", '"weights/checkpoint.h"'),
                              ("src/backend/ref/x_test.cc", '"support/rig.h"'), ("src/audio/mel_test.cc", "<nlohmann/json.hpp>")):
            with self.subTest(path=path, include=include):
                self.assertEqual(self.planted(path, f"  #  include {include}\n"), (0, ""))


if __name__ == "__main__":
    unittest.main()
