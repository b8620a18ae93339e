// voxrt inspect: what a checkpoint, an exported artifact or an audio file is.
#include "weights/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cli.h"
#include "options.h"

namespace voxrt::app {
namespace {

using base::Json;

struct InspectCommand {
  std::vector<std::string> paths;
  std::string data_path;
  bool json = false;
  bool tensors = false;
  bool scan = false;
  bool verify = false;
  RawOptions raw;
  ScreenFlags screen;
};

// What was found out about one path, and why it cannot be used where it cannot.
struct Finding {
  Json json;
  Status error;
};

// A directory is a checkpoint; a file is one when it begins as safetensors does: 8 bytes of header length, then the
// header's '{'.
bool LooksLikeModel(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error) || path.ends_with(".safetensors")) return true;
  std::ifstream file(path, std::ios::binary);
  char head[9] = {};
  return file.read(head, sizeof(head)) && head[8] == '{';
}

Result<Finding> InspectModel(const std::string& path, const InspectCommand& command) {
  VOXRT_ASSIGN_OR_RETURN(weights::ModelReport report, weights::InspectModel(path, {.data_path = command.data_path,
                                                                                   .scan_values = command.scan,
                                                                                   .verify = command.verify}));
  if (!command.tensors) report.tensors.clear();
  return Finding{weights::ToJson(report), report.error};
}

Result<Finding> InspectAudio(const std::string& path, const InspectCommand& command) {
  VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<audio::AudioSource> source,
                         audio::OpenFile(path, {.raw = ToRawFormat(command.raw)}));
  // The header may lie about the length: what can be decoded counts.
  std::vector<float> buffer(1 << 16);
  int64_t samples = 0;
  float peak = 0.0f;
  for (;;) {
    VOXRT_ASSIGN_OR_RETURN(const size_t count, source->Read(buffer));
    if (count == 0) break;
    samples += static_cast<int64_t>(count);
    for (size_t i = 0; i < count; ++i) peak = std::max(peak, std::abs(buffer[i]));
  }
  const audio::AudioInfo& info = source->info();
  constexpr double kModelRate = 16000.0;
  return Finding{Json::MakeObject({{"path", path},
                                   {"container", info.container},
                                   {"codec", info.codec},
                                   {"rate", info.rate},
                                   {"channels", info.channels},
                                   {"duration_s", static_cast<double>(samples) / kModelRate},
                                   {"header_duration_s", info.declared_s < 0 ? Json() : Json(info.declared_s)},
                                   {"peak", static_cast<double>(peak)}}),
                 {}};
}

std::string ValueText(const Json& value) {
  const std::string* text = value.AsString();
  return text != nullptr ? *text : value.Dump();
}

// "key  value" lines, nested objects indented; objects in a list are one line each.
void AppendText(const Json& object, size_t indent, std::string* out) {
  const std::string margin(indent, ' ');
  for (const Json::Member& member : *object.AsObject()) {
    const Json& value = member.second;
    if (value.is_object()) {
      *out += margin + member.first + "\n";
      AppendText(value, indent + 2, out);
    } else if (value.is_array() && !value.AsArray()->empty() && value.AsArray()->front().is_object()) {
      *out += margin + member.first + "\n";
      for (const Json& element : *value.AsArray()) {
        *out += margin + " ";
        for (const Json::Member& field : *element.AsObject())
          *out += fmt::format(" {}={}", field.first, ValueText(field.second));
        *out += "\n";
      }
    } else {
      *out += fmt::format("{}{:<{}} {}\n", margin, member.first, 24 - std::min<size_t>(indent, 20), ValueText(value));
    }
  }
}

int RunInspect(const InspectCommand& command) {
  Screen screen(ToScreenOptions(command.screen));
  ExitCode failure = kOk;
  size_t succeeded = 0;
  for (const std::string& path : command.paths) {
    const Status kind = base::RefusePipe(path);  // reading one would wait
    const bool model = command.raw.format.empty() && kind.ok() && LooksLikeModel(path);
    const Result<Finding> found = !kind.ok() ? Result<Finding>(kind)
                                  : model    ? InspectModel(path, command)
                                             : InspectAudio(path, command);
    const Status status = found.ok() ? found->error : found.status();
    // Quiet, the verdict is the result.
    if (found.ok() && !(command.verify && command.screen.quiet)) {
      std::string out;
      if (command.json) {
        out = found->json.Dump() + "\n";
      } else {
        AppendText(found->json, 0, &out);
        if (command.paths.size() > 1) out += "\n";
      }
      if (Status written = screen.Out(out); !written.ok()) {
        if (!written.message().empty()) screen.Error(written.message());
        return kSomeFailed;
      }
    }
    if (status.ok()) {
      ++succeeded;
    } else {
      screen.Error(Explain(path, status));
      failure = model ? kModel : kInput;
    }
  }
  return failure != kOk && succeeded > 0 ? kSomeFailed : failure;
}

}  // namespace

void AddInspect(Cli& cli) {
  auto command = std::make_shared<InspectCommand>();
  CLI::App* app = cli.app.add_subcommand(
      "inspect", "Describe a checkpoint, an exported artifact or an audio file, also a damaged one");
  app->add_option("paths", command->paths, "Checkpoint directories, artifacts or audio files")
      ->required()
      ->type_name("PATH");
  app->add_option("--data-path", command->data_path, "Second file of an artifact that was exported in two parts")
      ->type_name("FILE");
  app->add_flag("--json", command->json, "One JSON object a line");
  app->add_flag("--tensors", command->tensors, "List every tensor too");
  app->add_flag("--scan", command->scan, "Look for NaN too: reads the whole model");
  app->add_flag("--verify", command->verify,
                "Compare an artifact's contents with the hash that it states: reads all of it");
  AddRawOptions(*app, &command->raw);
  AddScreenOptions(*app, &command->screen);
  app->callback([&cli, command] { cli.body = [command] { return RunInspect(*command); }; });
}

}  // namespace voxrt::app
