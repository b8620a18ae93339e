// What all subcommands share: the parser, the exit codes, and one Add function per subcommand (one file each).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/status.h"

namespace voxrt::app {

// Exit codes are part of the contract (docs/cli.md).
enum ExitCode : int { kOk = 0, kSomeFailed = 1, kUsage = 2, kModel = 3, kInput = 4, kInterrupted = 130 };

// The code that a failed Status ends the process with.
int ExitCodeFor(const Status& status);

struct Cli {
  CLI::App app;
  std::function<int()> body;  // set by the chosen subcommand's callback; run after parsing
};

void AddTranscribe(Cli& cli);
void AddListen(Cli& cli);
void AddInspect(Cli& cli);
void AddBench(Cli& cli);
void AddExport(Cli& cli);
void AddPull(Cli& cli);
void AddServe(Cli& cli);

}  // namespace voxrt::app
