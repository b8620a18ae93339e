// The two web pages, compiled into the program from live.html and status.html.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace voxrt::server {

std::string_view LivePage();
std::string_view StatusPage();
// Nothing is loaded from anywhere else, nobody may frame the page.
std::vector<std::pair<std::string, std::string>> PageHeaders();

}  // namespace voxrt::server
