// Every limit and switch of the server, with its default. Each is a flag of `voxrt serve` and a row of docs/server.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace voxrt::server {

struct ServerOptions {
  // Where and for whom.
  std::string host = "127.0.0.1";
  int port = 8000;                // plain; < 0 = closed, 0 = any free one
  int tls_port = -1;              // TLS; < 0 = closed, 0 = any free one
  std::string tls_cert, tls_key;  // PEM files
  std::vector<std::string> api_keys;
  std::vector<std::string> allowed_origins;  // besides the server's own; "*" = all
  std::vector<std::string> model_names;      // served names, the first is the default
  bool accept_any_model = false;
  bool page = true;  // "/" and "/status"
  int io_threads = 2;

  // How much at once.
  int max_sessions = 64;       // live sessions and uploads being transcribed
  bool admit_by_load = false;  // max_sessions is an estimate: nobody new while the engine is behind
  int max_connections = 1024;
  int max_connections_per_address = 0;  // 0 = no limit
  int upload_threads = 2;               // uploads transcribed at the same time

  // Messages and queues, in bytes.
  int64_t max_message_bytes = 24LL << 20;
  int64_t session_memory_bytes = 128LL << 20;
  int64_t max_session_backlog_bytes = 1LL << 30;
  int64_t max_total_backlog_bytes = 8LL << 30;
  int64_t max_outbound_bytes = 4LL << 20;
  int64_t max_upload_bytes = 25LL << 20;
  int64_t max_header_bytes = 16LL << 10;
  std::string temp_dir = "/tmp";

  // Times, in seconds.
  double handshake_timeout_s = 10.0;  // TLS handshake, request header, WebSocket close
  double keep_alive_s = 60.0;         // between requests
  double idle_timeout_s = 900.0;      // no message from a realtime client; 0 = off
  double max_session_s = 0.0;         // 0 = no limit
  double max_lag_s = 10.0;            // of a paced session, for as long again; 0 = off
  double push_back_s = 10.0;          // reading paused without a byte accepted
  double slow_reader_s = 30.0;        // outbound queue full
  double peer_timeout_s = 60.0;       // no byte from a realtime client; pinged at half of it
  double body_progress_s = 30.0;      // an upload must bring 1 KiB/s over this time
  double drain_timeout_s = 30.0;
  double stall_s = 20.0;  // waiting audio without any progress of the engine turns /health red
  double sse_ping_s = 15.0;
  double padding_after_s = 60.0;  // headers and white space before a slow JSON answer

  // Extras.
  bool vllm_empty_deltas = false;
  bool openai_warnings = true;
  bool other_warnings = false;
  bool ready_red_when_full = false;
  bool log_text = false;  // log what users say; never by default
  int default_delay_ms = 480;
};

}  // namespace voxrt::server
