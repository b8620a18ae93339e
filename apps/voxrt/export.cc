// voxrt export: a checkpoint becomes one quantized artifact. Flags with ExecuTorch's names and meanings; rules and
// formats are in src/export and src/quant.
#include "export/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "backend/registry.h"
#include "base/json.h"
#include "cli.h"
#include "engine/evaluate.h"
#include "interrupt.h"
#include "options.h"
#include "output_file.h"

namespace voxrt::app {
namespace {

namespace fs = std::filesystem;
using exporter::ExportOptions;
using exporter::ExportReport;
using exporter::QuantChoice;

constexpr char kDefaultOutputDir[] = "voxtral_rt_exports";  // as in ExecuTorch's example
constexpr char kArtifactFile[] = "model.safetensors";
constexpr char kStandardOutput[] = "-";
constexpr int kTickMs = 80;

struct ExportCommand {
  ExportOptions options;
  std::string output_dir;
  bool creates_folder = false;  // of --output-dir or the default one; that of --output must be there
  std::string quantizer = "refit";
  bool report = false;
  std::string report_path = kStandardOutput;
  std::string eval_dir;
  ScreenFlags screen;
  std::string producer;
};

void AddChoice(CLI::App& command, const std::string& flag, QuantChoice* choice, const std::string& what,
               const std::string& types, bool packing) {
  command.add_option(flag, choice->type, what + ": " + types + "; default: not quantized")->type_name("TYPE");
  command
      .add_option(flag + "-group-size", choice->group,
                  "Weights per scale: 32, 64, 128, 256, or 0 = one per row (8 bit); default 32 for 4 bit, 0 for 8 bit")
      ->type_name("N");
  if (packing) {
    command
        .add_option(
            flag + "-packing-format", choice->packing,
            "tile_packed_to_4d: asymmetric codes in the order of CUDA's tensor cores (with 4w and --backend cuda)")
        ->type_name("NAME");
  }
}

// Where the files go; folders are created here.
Status ResolveOutput(ExportCommand* command) {
  ExportOptions& options = command->options;
  if (!options.output_path.empty() && !command->output_dir.empty()) {
    return Status(StatusCode::kInvalidArgument, "--output and --output-dir are both given; use one of them");
  }
  command->creates_folder = options.output_path.empty();
  if (command->creates_folder) {
    const std::string folder = command->output_dir.empty() ? kDefaultOutputDir : command->output_dir;
    options.output_path = (fs::path(folder) / kArtifactFile).string();
  }
  // A bare name lies beside the artifact.
  if (!options.data_path.empty() && options.data_path.find('/') == options.data_path.npos) {
    options.data_path = (fs::path(options.output_path).parent_path() / options.data_path).string();
  }
  return {};
}

// Several outputs must not meet in one file, nor in the ".part" under which another is written.
Status CheckDistinct(const std::vector<std::string>& targets) {
  std::error_code error;
  std::vector<std::string> places;
  for (const std::string& target : targets)
    places.push_back(fs::weakly_canonical(fs::absolute(target, error), error).string());
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = 0; j < places.size(); ++j) {
      if (i == j || (places[i] != places[j] && places[i] + ".part" != places[j])) continue;
      return {StatusCode::kInvalidArgument,
              fmt::format("{} and {} are one file; give every output a name of its own", targets[i], targets[j])};
    }
  }
  return {};
}

// What would be replaced must be a plain file, and none that the export reads: `input` is one, or a folder of them.
Status CheckTarget(const std::string& path, const std::string& input) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  if (!fs::is_regular_file(path, error)) {
    return {StatusCode::kInvalidArgument, fmt::format("{} is no regular file; name a new file for the output", path)};
  }
  std::vector<fs::path> sources = {input};
  if (fs::is_directory(input, error)) {
    sources.assign(fs::directory_iterator(input, fs::directory_options::skip_permission_denied, error),
                   fs::directory_iterator());
  }
  for (const fs::path& source : sources) {
    if (fs::equivalent(path, source, error)) {
      return {StatusCode::kInvalidArgument,
              fmt::format("{} belongs to {}, which is read; name another file for the output", path, input)};
    }
  }
  return {};
}

Status CreateOutputDir(const ExportCommand& command) {
  if (!command.creates_folder) return {};
  const fs::path folder = fs::path(command.options.output_path).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error)
    return Status(StatusCode::kIo, fmt::format("cannot create the folder {}: {}", folder.string(), error.message()));
  return {};
}

std::string Gigabytes(int64_t bytes) {
  return bytes >= 1000000000 ? fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9)
                             : fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
}

// One line a format: how many tensors, their size, mean and largest error.
std::string SummaryText(const ExportReport& report) {
  struct Row {
    int tensors = 0;
    int64_t bytes = 0;
    double sum = 0.0;
    double worst = 0.0;
    std::string worst_name;
  };
  std::map<std::string, Row> rows;
  for (const exporter::TensorReport& tensor : report.tensors) {
    Row& row = rows[tensor.format];
    ++row.tensors;
    row.bytes += tensor.bytes;
    row.sum += tensor.relative_rms;
    if (tensor.relative_rms >= row.worst) row.worst = tensor.relative_rms, row.worst_name = tensor.name;
  }
  std::string text;
  for (const auto& [format, row] : rows) {
    text += fmt::format("{:<28} {:>4} tensors {:>10}", format, row.tensors, Gigabytes(row.bytes));
    if (row.worst > 0.0)
      text += fmt::format("  relative error {:.4f} on average, {:.4f} in {}", row.sum / row.tensors, row.worst,
                          row.worst_name);
    text += "\n";
  }
  return text;
}

std::string TableText(const ExportReport& report) {
  std::string text =
      fmt::format("{:<28} {:>12} {:>12} {:>12}  {}\n", "format", "bytes", "relative rms", "max error", "tensor");
  for (const exporter::TensorReport& tensor : report.tensors) {
    text += fmt::format("{:<28} {:>12} {:>12.6f} {:>12.3g}  {}\n", tensor.format, tensor.bytes, tensor.relative_rms,
                        tensor.max_abs, tensor.name);
  }
  return text;
}

class ExportRun {
 public:
  explicit ExportRun(const ExportCommand& command) : command_(command), screen_(ToScreenOptions(command.screen)) {}

  int Run() {
    const Status status = Work();
    screen_.ClearStatus();
    if (status.ok()) return kOk;
    if (status.code() == StatusCode::kCancelled) {
      screen_.Note("interrupted; nothing was written");
      return kInterrupted;
    }
    screen_.Error(status.message());
    return model_exit_code_.value_or(ExitCodeFor(status));
  }

 private:
  Status Work() {
    std::optional<quant::Search> search = quant::ParseSearch(command_.quantizer);
    if (!search.has_value()) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("--quantizer {} is unknown; use refit, reference or minmax", command_.quantizer));
    }
    command_.options.search = *search;
    VOXRT_RETURN_IF_ERROR(ResolveOutput(&command_));
    VOXRT_RETURN_IF_ERROR(exporter::ValidateOptions(command_.options));
    std::vector<std::string> targets = {command_.options.output_path};
    if (!command_.options.data_path.empty()) targets.push_back(command_.options.data_path);
    if (command_.report && command_.report_path != kStandardOutput) targets.push_back(command_.report_path);
    VOXRT_RETURN_IF_ERROR(CheckDistinct(targets));
    for (const std::string& target : targets) {
      VOXRT_RETURN_IF_ERROR(CheckTarget(target, command_.options.model_path));
      if (!command_.eval_dir.empty()) VOXRT_RETURN_IF_ERROR(CheckTarget(target, command_.eval_dir));
    }
    if (!command_.eval_dir.empty()) {
      VOXRT_ASSIGN_OR_RETURN(clips_, engine::LoadClips(command_.eval_dir));
    }
    std::unique_ptr<OutputFile> report_file;  // begun here: a place where it cannot be costs no work
    if (command_.report && command_.report_path != kStandardOutput) {
      VOXRT_ASSIGN_OR_RETURN(report_file, OutputFile::Create(command_.report_path));
    }
    ExportReport report;
    VOXRT_RETURN_IF_ERROR(Export(&report));
    std::string json = exporter::ReportJson(report);
    VOXRT_RETURN_IF_ERROR(Evaluate(&json));
    if (!command_.report) return {};
    if (report_file == nullptr) return screen_.Out(TableText(report));
    VOXRT_RETURN_IF_ERROR(report_file->Write(json + "\n"));
    return report_file->Commit();
  }

  Status Export(ExportReport* report) {
    const ExportOptions& options = command_.options;
    // Quantizing finds values that are not finite itself; copied tensors are small.
    auto opened = weights::Checkpoint::Open(options.model_path, {.threads = options.threads, .scan_values = false});
    if (!opened.ok()) {
      model_exit_code_ = ModelExitCode(opened.status());
      return opened.status();
    }
    const auto checkpoint = *opened;
    VOXRT_ASSIGN_OR_RETURN(const exporter::ExportPlan plan, exporter::MakePlan(options, *checkpoint));
    VOXRT_RETURN_IF_ERROR(CreateOutputDir(command_));
    VOXRT_ASSIGN_OR_RETURN(*report, exporter::WriteArtifact(options, plan, *checkpoint, command_.producer,
                                                            [&](int64_t done, int64_t total) {
                                                              if (screen_.StatusDue())
                                                                screen_.SetStatus(ProgressText(done, total));
                                                              return !Interrupted();
                                                            }));
    screen_.ClearStatus();
    screen_.Note(fmt::format("wrote {}{}{}: {} from {} in {:.1f} s", options.output_path,
                             options.data_path.empty() ? "" : " and ", options.data_path,
                             Gigabytes(report->artifact_bytes), Gigabytes(report->source_bytes), report->seconds));
    return command_.screen.quiet ? Status() : screen_.Out(SummaryText(*report));
  }

  static std::string ProgressText(int64_t done, int64_t total) {
    constexpr int kCells = 30;
    const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
    const auto filled = static_cast<size_t>(share * kCells);
    return fmt::format("quantizing [{}{}] {:3.0f} %  {} of {}", std::string(filled, '#'),
                       std::string(kCells - filled, '.'), share * 100.0, Gigabytes(done), Gigabytes(total));
  }

  // Word error rate of the checkpoint and of the artifact over the clips; adds "eval" to the report.
  Status Evaluate(std::string* json) {
    if (clips_.empty()) return {};
    VOXRT_ASSIGN_OR_RETURN(const engine::ScoreSum before, Score(command_.options.model_path));
    VOXRT_ASSIGN_OR_RETURN(const engine::ScoreSum after, Score(command_.options.output_path));
    VOXRT_RETURN_IF_ERROR(screen_.Out(fmt::format(
        "word error rate over {} clips ({} words): {:.2f} % before, {:.2f} % after; blank tokens {} before, {} after\n",
        clips_.size(), before.words, 100.0 * before.word_error_rate(), 100.0 * after.word_error_rate(), before.pads,
        after.pads)));
    VOXRT_ASSIGN_OR_RETURN(base::Json report, base::ParseJson(*json));
    const auto object = [](const engine::ScoreSum& sum) {
      return base::Json::MakeObject({{"words", sum.words},
                                     {"errors", sum.errors},
                                     {"word_error_rate", sum.word_error_rate()},
                                     {"tokens", sum.tokens},
                                     {"pads", sum.pads}});
    };
    report["eval"] = base::Json::MakeObject(
        {{"clips", static_cast<int64_t>(clips_.size())}, {"before", object(before)}, {"after", object(after)}});
    *json = report.Dump(1);
    return {};
  }

  Result<engine::ScoreSum> Score(const std::string& model_path) {
    engine::EngineOptions options;
    options.model_path = model_path;
    options.threads = command_.options.threads;
    if (model_path == command_.options.output_path) options.data_path = command_.options.data_path;
    for (const backend::BackendEntry& entry : backend::CompiledBackends()) {
      if (entry.name == command_.options.backend) options.backend = command_.options.backend;
    }
    VOXRT_ASSIGN_OR_RETURN(const auto loaded, engine::Engine::Create(options));
    VOXRT_ASSIGN_OR_RETURN(
        const auto scores,
        engine::ScoreClips(*loaded, clips_, command_.options.delay_tokens * kTickMs, [] { return Interrupted(); }));
    return engine::Sum(scores);
  }

  ExportCommand command_;
  Screen screen_;
  std::optional<int> model_exit_code_;  // of a checkpoint that cannot be opened, as for every other command
  std::vector<engine::EvalClip> clips_;
};

}  // namespace

void AddExport(Cli& cli) {
  auto command = std::make_shared<ExportCommand>();
  ExportOptions& o = command->options;
  CLI::App* app = cli.app.add_subcommand("export", "Turn a checkpoint directory into one quantized file");
  app->add_option("-m,--model,--model-path", o.model_path, "Checkpoint directory (Mistral or Hugging Face layout)")
      ->required()
      ->type_name("DIR");
  app->add_option("-o,--output", o.output_path, "File to write")->type_name("FILE");
  app->add_option(
         "--output-dir", command->output_dir,
         fmt::format("Folder to write {} into; created if absent (default: {})", kArtifactFile, kDefaultOutputDir))
      ->type_name("DIR");
  app->add_option(
         "--data-path", o.data_path,
         "Put the weights into this second file; a bare name lies beside the artifact, which then is a small manifest")
      ->type_name("FILE");
  app->add_option("--backend", o.backend, "For whom to validate: cpu or cuda; the file runs on both")
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--dtype", o.dtype, "Type of what is not quantized: bf16, or fp32 = as stored")
      ->capture_default_str()
      ->type_name("TYPE");
  AddChoice(*app, "--qlinear", &o.linear, "Decoder's linear layers, and the output head", "4w, 8w, 8da4w, 8da8w", true);
  AddChoice(*app, "--qlinear-encoder", &o.encoder, "Encoder's and adapter's linear layers", "4w, 8w, 8da4w, 8da8w",
            true);
  AddChoice(*app, "--qembedding", &o.embedding, "Token table", "4w, 8w", false);
  AddChoice(*app, "--qhead", &o.head,
            "Output head, if not as --qlinear; 8w shares the rows of an 8w token table; none keeps its floats",
            "4w, 8w, 8da4w, 8da8w, none", false);
  app->add_option("--quantizer", command->quantizer,
                  "How codes are chosen: refit (smallest error), reference (as ExecuTorch), minmax")
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--delay-tokens", o.delay_tokens, "Default delay, 80 ms each, 1 to 30; every run may choose another")
      ->capture_default_str()
      ->type_name("N");
  app->add_flag("--streaming", o.streaming, "Recorded as the default mode; one file serves both");
  app->add_option("--max-seq-len", o.max_seq_len, "Recorded; no effect here, caches are rings")
      ->capture_default_str()
      ->type_name("N");
  app->add_option("--max-enc-len", o.max_enc_len, "Encoder window in frames of 20 ms; default: the checkpoint's")
      ->type_name("N");
  app->add_option("--sliding-window", o.sliding_window, "Decoder window in tokens; default: the checkpoint's")
      ->type_name("N");
  app->add_option("--threads", o.threads, "Threads; 0 = one per core")->check(CLI::Range(0, 1024))->type_name("N");
  CLI::Option* report =
      app->add_option("--report", command->report_path, "Error and size of every tensor: a table, or JSON into FILE")
          ->expected(0, 1)
          ->type_name("FILE");
  app->add_option("--eval", command->eval_dir,
                  "Word error rate before and after over the clips of DIR (clips.json as in models/demo/clips)")
      ->type_name("DIR");
  AddScreenOptions(*app, &command->screen);
  app->callback([&cli, command, report] {
    command->report = report->count() > 0;
    if (command->report_path.empty()) command->report_path = kStandardOutput;
    command->producer = cli.app.version();
    cli.body = [command] { return ExportRun(*command).Run(); };
  });
}

}  // namespace voxrt::app
