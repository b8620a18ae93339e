// A server on the fake engine for end-to-end tests: prints its ports as one JSON line, obeys commands on standard
// input, one a line: stall, resume, lose, fail, transcribe RATE FILE (raw s16), drain, quit. Limits come as --name
// value (seconds, bytes or counts).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "server/protocol/json.h"
#include "server/server.h"
#include "server/testing/fake_engine.h"

namespace {

using voxrt::server::ServerOptions;

void Set(ServerOptions* options, const std::string& name, const std::string& value) {
  const std::map<std::string, double*> doubles = {{"handshake-timeout", &options->handshake_timeout_s},
                                                  {"idle-timeout", &options->idle_timeout_s},
                                                  {"max-session-seconds", &options->max_session_s},
                                                  {"max-lag", &options->max_lag_s},
                                                  {"push-back", &options->push_back_s},
                                                  {"slow-reader", &options->slow_reader_s},
                                                  {"peer-timeout", &options->peer_timeout_s},
                                                  {"body-progress", &options->body_progress_s},
                                                  {"drain-timeout", &options->drain_timeout_s},
                                                  {"stall", &options->stall_s},
                                                  {"sse-ping", &options->sse_ping_s},
                                                  {"padding-after", &options->padding_after_s}};
  const std::map<std::string, int64_t*> counts = {{"max-message", &options->max_message_bytes},
                                                  {"session-memory", &options->session_memory_bytes},
                                                  {"max-session-backlog", &options->max_session_backlog_bytes},
                                                  {"max-outbound", &options->max_outbound_bytes},
                                                  {"max-upload", &options->max_upload_bytes}};
  if (const auto it = doubles.find(name); it != doubles.end()) {
    *it->second = std::stod(value);
  } else if (const auto count = counts.find(name); count != counts.end()) {
    *count->second = std::stoll(value);
  } else if (name == "max-sessions") {
    options->max_sessions = std::stoi(value);
  } else if (name == "admit-by-load") {
    options->admit_by_load = value == "1";
  } else if (name == "max-connections") {
    options->max_connections = std::stoi(value);
  } else if (name == "max-connections-per-address") {
    options->max_connections_per_address = std::stoi(value);
  } else if (name == "api-key") {
    options->api_keys.push_back(value);
  } else if (name == "allowed-origin") {
    options->allowed_origins.push_back(value);
  } else if (name == "tls-cert") {
    options->tls_cert = value;
    options->tls_port = 0;
  } else if (name == "tls-key") {
    options->tls_key = value;
  } else if (name == "temp-dir") {
    options->temp_dir = value;
  } else if (name == "log") {
    voxrt::SetLogLevel(value == "info" ? voxrt::LogLevel::kInfo : voxrt::LogLevel::kWarning);
  } else {
    std::fprintf(stderr, "test_server: unknown option %s\n", name.c_str());
    std::exit(2);
  }
}

std::vector<float> ReadRaw(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  const std::string raw = bytes.str();
  std::vector<float> samples;
  for (size_t i = 0; i + 1 < raw.size(); i += 2) {
    int16_t value = 0;
    std::memcpy(&value, raw.data() + i, 2);
    samples.push_back(static_cast<float>(value) / 32768.0f);
  }
  return samples;
}

}  // namespace

int main(int argc, char** argv) {
  ServerOptions options;
  options.port = 0;
  options.max_sessions = 16;
  options.model_names = {"demo"};
  for (int i = 1; i + 1 < argc; i += 2) Set(&options, argv[i] + 2, argv[i + 1]);
  const auto engine = voxrt::server::testing::FakeEngine::Create(options.max_sessions * 2 + 8);
  auto server = voxrt::server::Server::Create(options, engine);
  if (!server.ok()) {
    std::fprintf(stderr, "test_server: %s\n", server.status().message().c_str());
    return 1;
  }
  std::printf("{\"port\":%d,\"tls_port\":%d}\n", (*server)->port(), (*server)->tls_port());
  std::fflush(stdout);
  std::thread commands([&] {
    std::string line;
    while (std::getline(std::cin, line)) {
      std::istringstream words(line);
      std::string verb, path;
      words >> verb >> path;
      if (verb == "stall" || verb == "resume") engine->Stall(verb == "stall");
      if (verb == "lose") engine->LoseDevice();
      if (verb == "fail") engine->FailNextSession();
      if (verb == "drain") (*server)->Drain();
      if (verb == "quit") break;
      std::string answer = "{\"ok\":true}";
      if (verb == "transcribe") answer = voxrt::server::Dump({{"text", engine->Transcribe(ReadRaw(path), 480)}});
      if (verb == "sessions") answer = voxrt::server::Dump({{"sessions", engine->info().sessions}});
      std::printf("%s\n", answer.c_str());
      std::fflush(stdout);
    }
    engine->Stall(false);
    (*server)->Stop();
  });
  (*server)->Run(true);
  const bool lost = (*server)->engine_lost();
  std::fflush(stdout);
  std::_Exit(lost ? 3 : 0);  // the command thread may wait for input
}
