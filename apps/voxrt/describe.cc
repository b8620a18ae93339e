// Completion scripts and manual page as text; see the header.
#include "describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "screen.h"

namespace voxrt::app {
namespace {

// The option table in the form that the writers below need.
struct OptionInfo {
  std::vector<std::string> flags;    // "-m", "--model"; empty for positional arguments
  std::string name;                  // of a positional argument
  std::string value;                 // "PATH"; empty for flags without a value
  std::vector<std::string> choices;  // fixed values
  std::string description;
  std::string default_value;
  bool repeats = false;
};

struct CommandInfo {
  std::string name;
  std::string description;
  std::vector<OptionInfo> options;
};

// "TYPE:{fp32,bf16}" is a value name and its choices.
void ParseType(std::string_view type, OptionInfo* info) {
  info->value = type.substr(0, type.find(':'));
  const size_t open = type.find('{');
  const size_t close = type.rfind('}');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return;
  for (const std::string& choice : CLI::detail::split(std::string(type.substr(open + 1, close - open - 1)), ',')) {
    info->choices.push_back(choice);
  }
}

OptionInfo Describe(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_snames()) info.flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.flags.push_back("--" + name);
  if (info.flags.empty()) info.name = option.get_name(true);
  if (option.get_items_expected_max() > 0) ParseType(option.get_type_name(), &info);
  info.description = option.get_description();
  info.default_value = option.get_default_str();
  info.repeats = option.get_items_expected_max() > 1;
  return info;
}

std::vector<OptionInfo> DescribeOptions(const CLI::App& app) {
  std::vector<OptionInfo> options;
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; }))
    options.push_back(Describe(*option));
  return options;
}

std::vector<CommandInfo> DescribeCommands(const CLI::App& app) {
  std::vector<CommandInfo> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back({command->get_name(), command->get_description(), DescribeOptions(*command)});
  }
  return commands;
}

std::string Replace(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// Inside '...' of a shell.
std::string ShellQuote(const std::string& text) { return Replace(text, "'", "'\\''"); }

bool TakesDirectory(const OptionInfo& option) { return option.value == "DIR"; }
bool TakesFile(const OptionInfo& option) { return option.value == "FILE" || option.value == "PATH"; }

std::string Join(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

std::string Roff(const std::string& text) { return Replace(Replace(text, "\\", "\\e"), "-", "\\-"); }

void AppendManOptions(const std::vector<OptionInfo>& options, std::string* out) {
  for (const OptionInfo& option : options) {
    std::vector<std::string> names;
    for (const std::string& flag : option.flags) names.push_back("\\fB" + Roff(flag) + "\\fR");
    std::string head =
        names.empty() ? "\\fI" + Roff(option.value) + "\\fR" + (option.repeats ? "..." : "") : Join(names, ", ");
    if (!names.empty() && !option.value.empty()) head += " \\fI" + Roff(option.value) + "\\fR";
    *out += ".TP\n" + head + "\n" + Roff(option.description);
    if (!option.choices.empty()) *out += "; one of " + Roff(Join(option.choices, ", "));
    if (!option.default_value.empty() && !option.value.empty()) *out += "; default " + Roff(option.default_value);
    *out += "\n";
  }
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::vector<std::string> names;
  std::string cases;
  for (const CommandInfo& command : DescribeCommands(app)) {
    names.push_back(command.name);
    std::vector<std::string> flags;
    std::string values;
    std::string positional;
    for (const OptionInfo& option : command.options) {
      flags.insert(flags.end(), option.flags.begin(), option.flags.end());
      if (option.flags.empty()) positional = Join(option.choices, " ");
      if (option.value.empty() || option.flags.empty()) continue;
      const std::string reply = TakesDirectory(option) ? "compgen -d -- \"$word\""
                                : TakesFile(option)
                                    ? "compgen -f -- \"$word\""
                                    : fmt::format("compgen -W '{}' -- \"$word\"", Join(option.choices, " "));
      values += fmt::format("        {}) mapfile -t COMPREPLY < <({}); return ;;\n", Join(option.flags, "|"), reply);
    }
    cases += fmt::format(
        "    {}) case \"$previous\" in\n{}      esac\n"
        "      if [[ $word == -* ]]; then mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$word\")\n"
        "      else mapfile -t COMPREPLY < <({}); fi ;;\n",
        command.name, values, Join(flags, " "),
        positional.empty() ? "compgen -f -- \"$word\"" : fmt::format("compgen -W '{}' -- \"$word\"", positional));
  }
  return fmt::format(
      "# bash completion of voxrt; source it, or put it into /usr/share/bash-completion/completions/voxrt\n"
      "_voxrt() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- \"$word\"); "
      "return; fi\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}  esac\n"
      "}}\n"
      "complete -o filenames -F _voxrt voxrt\n",
      Join(names, " "), cases);
}

std::string ZshCompletion(const CLI::App& app) {
  const auto escape = [](const std::string& text) {
    return ShellQuote(Replace(Replace(Replace(text, "[", "("), "]", ")"), ":", "\\:"));
  };
  std::string names;
  std::string cases;
  for (const CommandInfo& command : DescribeCommands(app)) {
    names += fmt::format("    '{}:{}'\n", command.name, escape(command.description));
    cases += fmt::format("    {}) _arguments -s", command.name);
    for (const OptionInfo& option : command.options) {
      const std::string action = !option.choices.empty()  ? "(" + Join(option.choices, " ") + ")"
                                 : TakesDirectory(option) ? "_files -/"
                                 : TakesFile(option)      ? "_files"
                                                          : " ";
      if (option.flags.empty()) {
        cases += fmt::format(" \\\n      '{}:{}:{}'", option.repeats ? "*" : "", option.value, action);
      }
      for (const std::string& flag : option.flags) {
        cases += fmt::format(" \\\n      '{}[{}]{}'", flag, escape(option.description),
                             option.value.empty() ? "" : ":" + option.value + ":" + action);
      }
    }
    cases += " ;;\n";
  }
  return fmt::format(
      "#compdef voxrt\n"
      "# zsh completion of voxrt; put it into a folder of $fpath under the name _voxrt\n"
      "_voxrt() {{\n"
      "  local -a commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
      "  local command=$words[2]\n"
      "  shift words; (( CURRENT-- ))\n"
      "  case $command in\n{}  esac\n"
      "}}\n"
      "_voxrt \"$@\"\n",
      names, cases);
}

std::string FishCompletion(const CLI::App& app) {
  std::string out = "# fish completion of voxrt; put it into ~/.config/fish/completions/voxrt.fish\n";
  for (const CommandInfo& command : DescribeCommands(app)) {
    out += fmt::format("complete -c voxrt -n __fish_use_subcommand -f -a {} -d '{}'\n", command.name,
                       ShellQuote(command.description));
    for (const OptionInfo& option : command.options) {
      if (option.flags.empty() && option.choices.empty()) continue;
      out += fmt::format("complete -c voxrt -n '__fish_seen_subcommand_from {}'", command.name);
      for (const std::string& flag : option.flags)
        out += flag.size() == 2 ? " -s " + flag.substr(1) : " -l " + flag.substr(2);
      if (!option.value.empty() && !option.flags.empty()) out += " -r";
      if (!option.choices.empty()) out += fmt::format(" -f -a '{}'", Join(option.choices, " "));
      out += fmt::format(" -d '{}'\n", ShellQuote(option.description));
    }
  }
  return out;
}

std::string ManPage(const CLI::App& app, const std::string& version) {
  std::string out = fmt::format(".TH VOXRT 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\nvoxrt \\- {}\n", Roff(version),
                                Roff(app.get_description()));
  out += ".SH SYNOPSIS\n\\fBvoxrt\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]... [\\fIFILE\\fR]...\n";
  out +=
      ".SH DESCRIPTION\nResults go to standard output and nothing else does; notes, progress and errors go to standard "
      "error.\n";
  for (const CommandInfo& command : DescribeCommands(app)) {
    out += ".SH \"VOXRT " + Roff(command.name) + "\"\n" + Roff(command.description) + ".\n";
    AppendManOptions(command.options, &out);
  }
  out +=
      ".SH \"EXIT STATUS\"\n"
      ".TP\n0\nDone.\n.TP\n1\nSome inputs failed, or the output could not be written.\n.TP\n2\nWrong use of options.\n"
      ".TP\n3\nThe model or the device failed.\n.TP\n4\nThe input failed.\n.TP\n130\nInterrupted; what was heard has "
      "been written.\n";
  return out;
}

void AddDescribe(Cli& cli) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion = cli.app.add_subcommand("completion", "Print a shell completion script");
  completion->add_option("shell", *shell, "Which shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("SHELL");
  const auto print = [](const std::string& text) {
    Screen screen({});
    const Status written = screen.Out(text);
    if (!written.ok() && !written.message().empty()) screen.Error(written.message());
    return written.ok() ? kOk : kSomeFailed;
  };
  completion->callback([&cli, shell, print] {
    cli.body = [&cli, shell, print] {
      return print(*shell == "bash"  ? BashCompletion(cli.app)
                   : *shell == "zsh" ? ZshCompletion(cli.app)
                                     : FishCompletion(cli.app));
    };
  });
  CLI::App* man = cli.app.add_subcommand("man", "Print the manual page");
  man->callback([&cli, print] { cli.body = [&cli, print] { return print(ManPage(cli.app, cli.app.version())); }; });
}

}  // namespace voxrt::app
