// voxrt: one program with subcommands. This file parses and dispatches; each subcommand has a file of its own.
#include <cstdio>
#include <exception>
#include <string>

#include "base/json.h"
#include "cli.h"
#include "describe.h"
#include "interrupt.h"

#ifndef VOXRT_VERSION
#define VOXRT_VERSION "unknown"
#endif

namespace voxrt::app {
namespace {

// An option that names a file or folder takes no empty text: a shell variable that is not set is no wish for the
// default.
void RefuseEmptyNames(CLI::App& command) {
  const auto check = [](const std::string& text) {
    return text.empty() ? "found an empty name, expected a file or folder; leave the option out for its default" : "";
  };
  for (CLI::Option* option : command.get_options([](const CLI::Option* any) { return any->nonpositional(); })) {
    const std::string type = option->get_type_name();
    if (type == "DIR" || type == "FILE" || type == "PATH") option->check(CLI::Validator(check, "", "name"));
  }
}

void Build(Cli& cli) {
  cli.app.description("Streaming speech to text with Mistral's Voxtral Realtime models");
  cli.app.name("voxrt");
  cli.app.set_version_flag("--version", "voxrt " VOXRT_VERSION);
  cli.app.require_subcommand(1);
  cli.app.footer(
      "voxrt COMMAND --help tells the options of a command. Exit codes: 0 done, 1 some inputs failed or output lost, 2 "
      "wrong use,\n"
      "3 model or device, 4 input, 130 interrupted.");
  AddTranscribe(cli);
  AddListen(cli);
#ifdef VOXRT_HAVE_SERVE
  AddServe(cli);
#endif
#ifdef VOXRT_HAVE_EXPORT
  AddExport(cli);
#endif
#ifdef VOXRT_HAVE_PULL
  AddPull(cli);
#endif
  AddInspect(cli);
  AddBench(cli);
  AddDescribe(cli);
  for (CLI::App* command : cli.app.get_subcommands([](const CLI::App*) { return true; })) RefuseEmptyNames(*command);
}

// One line and a hint instead of the parser's own report; --help and --version come through here as well.
int ReportParse(const Cli& cli, const CLI::Error& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success))
    return cli.app.exit(error) == 0 ? kOk : kUsage;
  std::string command = "voxrt";
  for (const CLI::App* sub : cli.app.get_subcommands()) command += " " + sub->get_name();
  std::fprintf(stderr, "voxrt: error: %s (see %s --help)\n", error.what(), command.c_str());
  return kUsage;
}

// The parser would only say that a command is required.
bool NamesUnknownCommand(const Cli& cli, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return false;
  std::string known;
  for (const CLI::App* sub : cli.app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == argv[1]) return false;
    known += (known.empty() ? "" : ", ") + sub->get_name();
  }
  std::fprintf(stderr, "voxrt: error: unknown command %s, expected one of %s (see voxrt --help)\n",
               base::QuoteForMessage(argv[1]).c_str(), known.c_str());
  return true;
}

int Main(int argc, char** argv) {
  InstallProcessHandlers();
  Cli cli;
  Build(cli);
  if (NamesUnknownCommand(cli, argc, argv)) return kUsage;
  try {
    cli.app.parse(argc, argv);
  } catch (const CLI::Error& error) {
    return ReportParse(cli, error);
  }
  return cli.body();
}

}  // namespace
}  // namespace voxrt::app

int main(int argc, char** argv) {
  try {
    return voxrt::app::Main(argc, argv);
  } catch (const std::exception&
               error) {  // allocation failure and the like: third-party exceptions are caught where they arise
    std::fprintf(stderr, "voxrt: error: %s\n", error.what());
    return voxrt::app::kSomeFailed;
  }
}
