// Shell completion and the manual page, made from the option table that the parser itself uses.
#pragma once

#include <string>

#include "cli.h"

namespace voxrt::app {

void AddDescribe(Cli& cli);

std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);
std::string ManPage(const CLI::App& app, const std::string& version);

}  // namespace voxrt::app
