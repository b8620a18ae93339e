// voxrt transcribe: files and standard input to text, tokens, JSON lines or subtitles.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <vector>

#include "cli.h"
#include "interrupt.h"
#include "options.h"
#include "output_file.h"
#include "sink.h"
#include "stream_run.h"

namespace voxrt::app {
namespace {

// Bounds how much is still worked off after Ctrl-C, and keeps bulk encoder calls fed.
constexpr int64_t kFilePendingSamples = 16000LL * 30;

struct TranscribeOptions {
  std::vector<std::string> inputs;
  ModelOptions model;
  DecodeOptions decode;
  RawOptions raw;
  ScreenFlags screen;
  FormatFlags formats;
  bool streaming = false;
  std::string output_dir;
};

// Combinations that the parser cannot judge option by option.
Status CheckUsage(const TranscribeOptions& options) {
  const auto usage = [](std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); };
  if (std::count(options.inputs.begin(), options.inputs.end(), "-") > 1)
    return usage("standard input (-) can be given once only");
  VOXRT_RETURN_IF_ERROR(CheckRemoteOutput(options.model, options.formats));
  if (!options.output_dir.empty()) return {};
  const std::vector<OutputFormat> formats = ToFormats(options.formats);
  if (formats.size() > 1) return usage("several output formats need --output-dir DIR: standard output takes one");
  const bool subtitles = formats[0] == OutputFormat::kSrt || formats[0] == OutputFormat::kVtt;
  if (subtitles && options.inputs.size() > 1)
    return usage("subtitles of several inputs need --output-dir DIR: one file each");
  return {};
}

// File names without ending, one per input: "talk.wav" gives "talk"; where that is taken already "talk-2", and so on.
std::vector<std::string> OutputStems(const std::vector<std::string>& inputs) {
  std::vector<std::string> stems;
  std::set<std::string> taken;
  for (const std::string& input : inputs) {
    const std::string base = input == "-" ? "stdin" : std::filesystem::path(input).stem().string();
    std::string stem = base.empty() ? "audio" : base;
    for (int n = 2; !taken.insert(stem).second; ++n) stem = fmt::format("{}-{}", base, n);
    stems.push_back(std::move(stem));
  }
  return stems;
}

// Standard input that arrives as it is made (pipe, terminal), not a file behind a redirection.
bool IsLive(const std::string& input) {
  struct stat info = {};
  return input == "-" && (fstat(STDIN_FILENO, &info) != 0 || !S_ISREG(info.st_mode));
}

std::string DisplayName(const std::string& input) { return input == "-" ? "standard input" : input; }

class TranscribeCommand {
 public:
  TranscribeCommand(const TranscribeOptions& options, Screen& screen)
      : options_(options), screen_(screen), formats_(ToFormats(options.formats)), stems_(OutputStems(options.inputs)) {}

  int Run() {
    if (Status status = PrepareOutputDir(); !status.ok()) {
      screen_.Error(status.message());
      return kUsage;
    }
    for (size_t i = 0; i < options_.inputs.size() && !Interrupted(); ++i) {
      const std::string& input = options_.inputs[i];
      const StreamRunResult result = RunInput(input, stems_[i]);
      if (model_exit_code_ != kOk) return model_exit_code_;
      if (result.exit_code == kOk || result.exit_code == kInterrupted) {
        ++succeeded_;
        continue;
      }
      if (!result.status.message().empty()) screen_.Error(Explain(DisplayName(input), result.status));
      failure_ = result.exit_code;
      if (result.output_failed && options_.output_dir.empty()) return kSomeFailed;  // nobody reads the rest either
    }
    return Conclude();
  }

 private:
  Status PrepareOutputDir() const {
    if (options_.output_dir.empty()) return {};
    std::error_code error;
    std::filesystem::create_directories(options_.output_dir, error);
    if (error)
      return {StatusCode::kIo, fmt::format("cannot create --output-dir {}: {}", options_.output_dir, error.message())};
    return {};
  }

  // The model is loaded when the first input turns out to be readable, but before standard input is touched: what waits
  // there must not grow old meanwhile.
  bool EnsureEngine() {
    if (engine_) return true;
    Result<std::shared_ptr<engine::Engine>> engine = LoadEngine(options_.model, 1, screen_);
    if (!engine.ok()) {
      model_exit_code_ = ModelExitCode(engine.status());
      return false;
    }
    engine_ = *std::move(engine);
    return true;
  }

  static StreamRunResult Failure(const Status& status, ExitCode code) {
    StreamRunResult result;
    result.status = status;
    result.exit_code = status.code() == StatusCode::kCancelled ? kInterrupted : code;
    return result;
  }

  StreamRunResult RunInput(const std::string& input, const std::string& stem) {
    std::vector<std::unique_ptr<OutputFile>> files;
    std::vector<std::unique_ptr<Sink>> sinks;
    if (Status status = OpenSinks(input, stem, &files, &sinks); !status.ok()) return Failure(status, kSomeFailed);
    std::vector<Sink*> sink_pointers;
    for (const std::unique_ptr<Sink>& sink : sinks) sink_pointers.push_back(sink.get());

    std::atomic<bool> stop = false;
    if (input == "-" && !EnsureEngine()) return {};
    Result<std::unique_ptr<audio::AudioSource>> source = OpenInput(input, &stop);
    if (!source.ok()) {
      for (Sink* sink : sink_pointers) static_cast<void>(sink->Fail(source.status()).ok());
      return Failure(source.status(), kInput);
    }
    if (!EnsureEngine()) return {};
    StreamRunResult result = RunStream(*engine_, **source, sink_pointers, screen_, RunOptions(input, &stop));
    if (result.status.ok()) {
      for (const std::unique_ptr<OutputFile>& file : files) {
        if (Status status = file->Commit(); !status.ok()) return Failure(status, kSomeFailed);
      }
      Report(input, result.summary);
      WarnOfCut(input, (*source)->info().declared_s, result.summary);
    }
    return result;
  }

  Status OpenSinks(const std::string& input, const std::string& stem, std::vector<std::unique_ptr<OutputFile>>* files,
                   std::vector<std::unique_ptr<Sink>>* sinks) {
    if (options_.output_dir.empty()) {
      const bool prefix = options_.inputs.size() > 1;
      sinks->push_back(
          MakeSink(formats_[0], input, prefix, [this](std::string_view bytes) { return screen_.Out(bytes); }));
      return {};
    }
    for (const OutputFormat format : formats_) {
      const std::string path =
          (std::filesystem::path(options_.output_dir) / (stem + "." + std::string(OutputExtension(format)))).string();
      if (std::error_code error; input != "-" && std::filesystem::equivalent(path, input, error)) {
        return {StatusCode::kInvalidArgument,
                fmt::format("the result {} would replace its own input; choose another --output-dir", path)};
      }
      VOXRT_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, OutputFile::Create(path));
      sinks->push_back(
          MakeSink(format, input, false, [out = file.get()](std::string_view bytes) { return out->Write(bytes); }));
      files->push_back(std::move(file));
    }
    return {};
  }

  Result<std::unique_ptr<audio::AudioSource>> OpenInput(const std::string& input, const std::atomic<bool>* stop) const {
    const audio::SourceOptions source_options{.raw = ToRawFormat(options_.raw)};
    if (input != "-") return audio::OpenFile(input, source_options);
    return audio::OpenReader(StandardInputReader(stop), DisplayName(input), source_options);
  }

  StreamRunOptions RunOptions(const std::string& input, std::atomic<bool>* stop) const {
    const bool live = options_.streaming || IsLive(input);
    return {.session = {.delay_ms = options_.decode.delay_ms,
                        .temperature = options_.decode.temperature,
                        .seed = options_.decode.seed,
                        .live = live,
                        .max_pending_samples = kFilePendingSamples},
            .name = DisplayName(input),
            .stop = stop,
            .on_samples = {},
            .status_line = {}};
  }

  // All that was there became text, but the header promised more.
  void WarnOfCut(const std::string& input, double declared_s, const Summary& summary) {
    const double audio_s = static_cast<double>(summary.audio_ms) / 1e3;
    if (summary.interrupted || declared_s <= audio_s + std::max(0.5, 0.02 * declared_s)) return;
    screen_.Warning(
        fmt::format("{}: ends after {:.2f} s, expected {:.2f} s from its header; it was cut short, copy it again",
                    DisplayName(input), audio_s, declared_s));
  }

  void Report(const std::string& input, const Summary& summary) {
    if (!screen_.shows_status() && !options_.screen.verbose) return;
    const double audio = static_cast<double>(summary.audio_ms) / 1e3;
    screen_.Note(fmt::format("{}: {:.2f} s of audio in {:.2f} s ({:.1f}x real time){}", DisplayName(input), audio,
                             summary.wall_seconds, summary.wall_seconds > 0 ? audio / summary.wall_seconds : 0.0,
                             summary.interrupted ? ", interrupted" : ""));
  }

  int Conclude() {
    const size_t count = options_.inputs.size();
    const bool partly = failure_ != kOk && succeeded_ > 0;
    if (count > 1 && (failure_ != kOk || Interrupted())) {
      screen_.Note(fmt::format("{} of {} inputs transcribed", succeeded_, count));
    }
    if (Interrupted()) return kInterrupted;
    return partly ? kSomeFailed : failure_;
  }

  const TranscribeOptions& options_;
  Screen& screen_;
  std::vector<OutputFormat> formats_;
  std::vector<std::string> stems_;
  std::shared_ptr<engine::Engine> engine_;
  int model_exit_code_ = kOk;
  size_t succeeded_ = 0;
  ExitCode failure_ = kOk;
};

int RunTranscribe(const TranscribeOptions& options) {
  Screen screen(ToScreenOptions(options.screen));
  if (Status status = CheckUsage(options); !status.ok()) {
    screen.Error(status.message() + " (see voxrt transcribe --help)");
    return kUsage;
  }
  return TranscribeCommand(options, screen).Run();
}

}  // namespace

void AddTranscribe(Cli& cli) {
  auto options = std::make_shared<TranscribeOptions>();
  CLI::App* command = cli.app.add_subcommand("transcribe", "Transcribe audio files or standard input");
  command->add_option("inputs", options->inputs, "Audio or video files; - is standard input")
      ->required()
      ->type_name("FILE");
  AddModelOptions(*command, &options->model);
  AddServerOptions(*command, &options->model);
  AddDecodeOptions(*command, &options->decode);
  AddFormatOptions(*command, &options->formats);
  command
      ->add_option("-o,--output-dir", options->output_dir,
                   "Write one file per input and format here instead of standard output")
      ->type_name("DIR");
  command->add_flag("--streaming", options->streaming,
                    "One 80 ms tick at a time: first words soonest, same tokens, slower overall");
  AddRawOptions(*command, &options->raw);
  AddScreenOptions(*command, &options->screen);
  command->callback([&cli, options] { cli.body = [options] { return RunTranscribe(*options); }; });
}

}  // namespace voxrt::app
