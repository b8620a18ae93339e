// voxrt pull: fetches a checkpoint from a model hub. Reads HF_TOKEN and HF_ENDPOINT; everything else is in src/hub.
#include "hub/pull.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>

#include "cli.h"
#include "interrupt.h"
#include "options.h"

namespace voxrt::app {
namespace {

struct PullCommand {
  hub::PullOptions options;
  ScreenFlags screen;
};

// The first variable that is set and not empty.
std::string FromEnvironment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread is started
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

// "consolidated.safetensors  1.23 of 8.86 GB (14 %)  45.1 MB/s  2:49 left"
class ProgressLine {
 public:
  std::string Text(const std::string& file, int64_t done, int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (file != file_) {
      file_ = file;
      start_ = now;
      start_bytes_ = done;
    }
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double rate = seconds > 0.5 ? static_cast<double>(done - start_bytes_) / seconds : 0.0;
    std::string text = fmt::format("{}  {:.2f} of {:.2f} GB ({:.0f} %)", file, static_cast<double>(done) * 1e-9,
                                   static_cast<double>(total) * 1e-9,
                                   total > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 100.0);
    if (rate > 0.0) {
      text += fmt::format("  {:.1f} MB/s  {} left", rate * 1e-6,
                          FormatClock(static_cast<int64_t>(1000.0 * static_cast<double>(total - done) / rate)));
    }
    return text;
  }

 private:
  std::string file_;
  std::chrono::steady_clock::time_point start_;
  int64_t start_bytes_ = 0;
};

int RunPull(PullCommand command) {
  Screen screen(ToScreenOptions(command.screen));
  hub::PullOptions& options = command.options;
  if (options.endpoint.empty()) options.endpoint = hub::kDefaultEndpoint;
  if (options.directory.empty()) options.directory = options.repo.substr(options.repo.rfind('/') + 1);
  options.transfer.http.cancelled = InterruptFlag();
  ProgressLine line;
  options.progress = [&](const std::string& file, int64_t done, int64_t total) {
    if (screen.StatusDue()) screen.SetStatus(line.Text(file, done, total));
  };
  Result<hub::PullReport> report = hub::Pull(options);
  screen.ClearStatus();
  if (!report.ok()) {
    screen.Error(report.status().message());
    return report.status().code() == StatusCode::kNotFound || report.status().code() == StatusCode::kUnavailable
               ? kInput
               : ExitCodeFor(report.status());
  }
  screen.Note(fmt::format("{} at {}: {} files, {:.2f} GB, verified", options.repo, report->commit.substr(0, 12),
                          report->files.size(), static_cast<double>(report->bytes) * 1e-9));
  return screen.Out(options.directory + "\n").ok() ? kOk : kSomeFailed;
}

}  // namespace

void AddPull(Cli& cli) {
  auto command = std::make_shared<PullCommand>();
  CLI::App* app = cli.app.add_subcommand("pull", "Download a checkpoint from a model hub; goes on where it stopped");
  app->add_option("repo", command->options.repo, "OWNER/NAME on the hub")->capture_default_str()->type_name("REPO");
  app->add_option("--revision", command->options.revision, "Branch, tag or commit")
      ->capture_default_str()
      ->type_name("REV");
  app->add_option("--output-dir", command->options.directory, "Where the files go; created if absent (default: NAME)")
      ->type_name("DIR");
  app->add_option("--connections", command->options.transfer.connections, "Parallel ranges of one file")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->type_name("N");
  AddScreenOptions(*app, &command->screen);
  app->footer("HF_TOKEN: access token for gated repositories. HF_ENDPOINT: another hub or a mirror.");
  app->callback([&cli, command] {
    command->options.endpoint = FromEnvironment({"HF_ENDPOINT"});
    command->options.transfer.http.token = FromEnvironment({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
    cli.body = [command] { return RunPull(*command); };
  });
}

}  // namespace voxrt::app
