// Who may connect: API keys in all the places clients put them, WebSocket subprotocols, the Origin policy. Pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace voxrt::server {

// What a request says about itself. Header values as received, empty when absent.
struct RequestCredentials {
  std::string authorization;
  std::string x_api_key;
  std::string api_key;
  std::string subprotocols;  // Sec-WebSocket-Protocol, all fields joined by commas
};

class KeyRing {
 public:
  KeyRing() = default;
  explicit KeyRing(std::vector<std::string> keys) : keys_(std::move(keys)) {}
  bool open() const { return keys_.empty(); }  // no key configured: everybody may connect
  // Takes the same time whichever key matches and wherever a wrong one differs.
  bool Accepts(std::string_view key) const;
  bool Accepts(const RequestCredentials& credentials) const;

 private:
  std::vector<std::string> keys_;
};

struct SubprotocolChoice {
  bool offered = false;
  std::string echo;               // empty: nothing to echo
  bool only_credentials = false;  // refuse: whatever is echoed, the client would fail
  bool beta = false;              // openai-beta.realtime-v1 among the offered
  bool realtime = false;
};
// `realtime` when offered; else the first token that is no credential.
SubprotocolChoice ChooseSubprotocol(std::string_view offered);

// No Origin, the server's own origin, or one of `allowed` ("*" allows all).
bool OriginAllowed(std::string_view origin, std::string_view host, const std::vector<std::string>& allowed);

// Comma-separated list items without surrounding spaces; empty ones are left out.
std::vector<std::string> SplitList(std::string_view list);

bool EqualsIgnoreCase(std::string_view a, std::string_view b);

}  // namespace voxrt::server
