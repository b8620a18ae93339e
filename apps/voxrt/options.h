// Options that several subcommands share, so that a flag has one name, one check and one help text everywhere.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "audio/source.h"
#include "base/status.h"
#include "engine/engine.h"
#include "screen.h"
#include "sink.h"

namespace voxrt::app {

// --model --data-path --backend --device --threads --kv-type --head-scan
struct ModelOptions {
  std::string model;  // empty: the bundled demo checkpoint
  std::string data_path;
  std::string backend = "cpu";
  int device = 0;
  int threads = 0;
  std::string kv_type;
  bool head_scan = false;
  std::string server;      // address of a voxrt server that does the work instead
  std::string server_key;  // empty: the environment's VOXRT_API_KEY
};
void AddModelOptions(CLI::App& command, ModelOptions* options);
// --server --server-key, where the server is built in
void AddServerOptions(CLI::App& command, ModelOptions* options);

// --delay-ms --temperature --seed
struct DecodeOptions {
  int delay_ms = 0;
  float temperature = 0.0f;
  uint64_t seed = 0;
};
void AddDecodeOptions(CLI::App& command, DecodeOptions* options);

// --txt --json --srt --vtt --tokens
struct FormatFlags {
  bool txt = false, tokens = false, json = false, srt = false, vtt = false;
};
void AddFormatOptions(CLI::App& command, FormatFlags* flags);
// kInvalidArgument where an output is asked for that a remote server cannot give.
Status CheckRemoteOutput(const ModelOptions& model, const FormatFlags& flags);

std::vector<OutputFormat> ToFormats(const FormatFlags& flags);  // text where none was chosen

// --format --rate --channels: raw samples without a header
struct RawOptions {
  std::string format;  // empty: detect the container
  int rate = 16000;
  int channels = 1;
};
void AddRawOptions(CLI::App& command, RawOptions* options);
std::optional<audio::RawFormat> ToRawFormat(const RawOptions& options);

// Standard input as bytes; a read that waits ends with kCancelled when the user interrupts or `*stop` is raised.
audio::ByteReader StandardInputReader(const std::atomic<bool>* stop);

// --quiet --verbose --color
struct ScreenFlags {
  bool quiet = false;
  bool verbose = false;
  std::string color = "auto";
};
void AddScreenOptions(CLI::App& command, ScreenFlags* flags);
// Sets the log level too.
ScreenOptions ToScreenOptions(const ScreenFlags& flags);

// "NAME: message", the name as it is and only once.
std::string Explain(const std::string& name, const Status& status);

// ../share/voxrt/models/demo beside the program, then models/demo in a folder above it (build tree); empty when there
// is none.
std::string FindDemoModel();

// The model named, or the demo checkpoint with a note about what it can do.
Result<std::string> ResolveModel(const std::string& model, Screen& screen);

// Loads the model, with progress on the screen while it takes long. The error is printed; its code is kModel, or kUsage
// for a wrong option.
Result<std::shared_ptr<engine::Engine>> LoadEngine(const ModelOptions& options, int max_sessions, Screen& screen);
int ModelExitCode(const Status& status);

}  // namespace voxrt::app
