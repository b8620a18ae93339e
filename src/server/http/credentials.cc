#include "server/http/credentials.h"

#include <algorithm>
#include <cctype>

namespace voxrt::server {
namespace {

constexpr std::string_view kOpenAiKeyPrefix = "openai-insecure-api-key.";

bool IsIgnoredToken(std::string_view token) {
  return token.starts_with("openai-organization.") || token.starts_with("openai-project.");
}

// Mistral's ephemeral keys come as a bare second token.
bool IsCredential(std::string_view token) { return token.starts_with(kOpenAiKeyPrefix) || token.starts_with("rt_"); }

char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

}  // namespace

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return Lower(x) == Lower(y); });
}

std::vector<std::string> SplitList(std::string_view list) {
  std::vector<std::string> items;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
    if (!item.empty()) items.emplace_back(item);
  }
  return items;
}

bool KeyRing::Accepts(std::string_view key) const {
  unsigned accepted = 0;
  for (const std::string& known : keys_) {
    // Compares every byte of the given key against the known one, wrapped around: time depends on the given length
    // alone.
    unsigned difference = known.size() == key.size() ? 0U : 1U;
    for (size_t i = 0; i < key.size(); ++i) {
      const char expected = known.empty() ? '\0' : known[i % known.size()];
      difference |= static_cast<unsigned>(static_cast<unsigned char>(key[i] ^ expected));
    }
    accepted |= difference == 0 && !known.empty() ? 1U : 0U;
  }
  return accepted != 0;
}

bool KeyRing::Accepts(const RequestCredentials& credentials) const {
  if (open()) return true;
  const std::string_view authorization = credentials.authorization;
  bool accepted = false;
  if (authorization.size() > 7 && EqualsIgnoreCase(authorization.substr(0, 7), "Bearer "))
    accepted |= Accepts(authorization.substr(7));
  if (!credentials.x_api_key.empty()) accepted |= Accepts(credentials.x_api_key);
  if (!credentials.api_key.empty()) accepted |= Accepts(credentials.api_key);
  for (const std::string& token : SplitList(credentials.subprotocols)) {
    const std::string_view view = token;
    accepted |= Accepts(view.starts_with(kOpenAiKeyPrefix) ? view.substr(kOpenAiKeyPrefix.size()) : view);
  }
  return accepted;
}

SubprotocolChoice ChooseSubprotocol(std::string_view offered) {
  SubprotocolChoice choice;
  for (const std::string& token : SplitList(offered)) {
    choice.offered = true;
    if (token == "realtime") choice.realtime = true;
    if (token == "openai-beta.realtime-v1") choice.beta = true;
    if (choice.echo.empty() && !IsCredential(token) && !IsIgnoredToken(token)) choice.echo = token;
  }
  if (choice.realtime) choice.echo = "realtime";
  choice.only_credentials = choice.offered && choice.echo.empty();
  return choice;
}

bool OriginAllowed(std::string_view origin, std::string_view host, const std::vector<std::string>& allowed) {
  if (origin.empty()) return true;
  const size_t scheme = origin.find("://");
  if (scheme != std::string_view::npos && !host.empty() && EqualsIgnoreCase(origin.substr(scheme + 3), host))
    return true;
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& entry) { return entry == "*" || EqualsIgnoreCase(entry, origin); });
}

}  // namespace voxrt::server
