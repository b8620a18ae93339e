#include "server/client/remote_engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "server/client/byte_connection.h"
#include "server/protocol/base64.h"
#include "server/protocol/json.h"

namespace voxrt::server {
namespace {

using engine::Event;
using engine::EventType;

constexpr size_t kChunkSamples = 16000;  // of one message
constexpr size_t kMaxMessageBytes = 64 << 20;
constexpr size_t kMaxHeaderBytes = 64 << 10;
constexpr int64_t kTickSamples = 1280;
constexpr auto kReasonWait = std::chrono::seconds(1);

// A masked frame; the key only has to differ from frame to frame.
std::string MaskedFrame(uint8_t opcode, std::string_view payload, uint32_t key) {
  std::string frame(1, static_cast<char>(0x80 | opcode));
  const uint64_t size = payload.size();
  const int extra = size < 126 ? 0 : size < 65536 ? 2 : 8;
  frame += static_cast<char>(0x80 | (extra == 0 ? static_cast<int>(size) : extra == 2 ? 126 : 127));
  for (int i = extra - 1; i >= 0; --i) frame += static_cast<char>(size >> (8 * i));
  for (int i = 0; i < 4; ++i) frame += static_cast<char>(key >> (8 * i));
  for (size_t i = 0; i < payload.size(); ++i)
    frame += static_cast<char>(payload[i] ^ static_cast<char>(key >> (8 * (i % 4))));
  return frame;
}

// One WebSocket connection, as client.
class MessageConnection {
 public:
  static Result<std::unique_ptr<MessageConnection>> Open(const RemoteOptions& options);
  Status Send(const std::string& text) { return SendFrame(1, text); }
  // The next text message; kCancelled when the server closed, with its reason.
  Result<std::string> Receive();
  void WaitForEver() { bytes_->LimitReads(std::chrono::seconds(0)); }
  void Interrupt() { bytes_->Interrupt(); }
  void Close() { (void)SendFrame(8, std::string("\x03\xE8", 2)).ok(); }

 private:
  Status SendFrame(uint8_t opcode, std::string_view payload) {
    const std::lock_guard lock(write_mutex_);
    return bytes_->Write(MaskedFrame(opcode, payload, static_cast<uint32_t>(random_())));
  }
  static Status CloseReason(const std::string& payload);
  Status Fill(size_t wanted);
  Status Handshake(const ServerUrl& url, const RemoteOptions& options);

  std::unique_ptr<ByteConnection> bytes_;
  std::mutex write_mutex_;
  std::mt19937 random_{std::random_device()()};
  std::string buffer_;
};

Result<std::unique_ptr<MessageConnection>> MessageConnection::Open(const RemoteOptions& options) {
  VOXRT_ASSIGN_OR_RETURN(const ServerUrl url, ParseServerUrl(options.url));
  auto connection = std::make_unique<MessageConnection>();
  VOXRT_ASSIGN_OR_RETURN(connection->bytes_, ByteConnection::Open(url));
  VOXRT_RETURN_IF_ERROR(connection->Handshake(url, options));
  return connection;
}

Status MessageConnection::Handshake(const ServerUrl& url, const RemoteOptions& options) {
  std::string request =
      "GET " + url.base + "/v1/realtime HTTP/1.1\r\nHost: " + url.host + ":" + std::to_string(url.port) +
      "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
      EncodeBase64(std::string(16, 'v')) + "\r\n";
  if (options.api_key.find_first_of("\r\n") != std::string::npos)
    return {StatusCode::kInvalidArgument, "the API key holds a line break"};
  if (!options.api_key.empty()) request += "Authorization: Bearer " + options.api_key + "\r\n";
  VOXRT_RETURN_IF_ERROR(bytes_->Write(request + "\r\n"));
  size_t end = std::string::npos;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (buffer_.size() > kMaxHeaderBytes) return {StatusCode::kIo, options.url + " does not answer like a server"};
    VOXRT_RETURN_IF_ERROR(Fill(buffer_.size() + 1));
  }
  const std::string status = buffer_.substr(0, buffer_.find("\r\n"));
  if (!status.starts_with("HTTP/1.1 101")) {
    std::string why = status.size() > 9 ? status.substr(9) : status;
    const std::optional<Json> body = ParseJson(std::string_view(buffer_).substr(end + 4));
    const Json* error = body ? Member(*body, "error") : nullptr;
    if (error != nullptr) why += ": " + StringMember(*error, "message").value_or("");
    return {StatusCode::kUnavailable, "the server " + options.url + " refuses: " + why};
  }
  buffer_.erase(0, end + 4);
  return {};
}

Status MessageConnection::Fill(size_t wanted) {
  char chunk[16384];
  while (buffer_.size() < wanted) {
    VOXRT_ASSIGN_OR_RETURN(const size_t n, bytes_->Read(chunk, sizeof(chunk)));
    if (n == 0) return {StatusCode::kIo, "the server ended the connection"};
    buffer_.append(chunk, n);
  }
  return {};
}

// kCancelled with the code and the reason of a close frame.
Status MessageConnection::CloseReason(const std::string& payload) {
  std::string why = "the server closed the session";
  if (payload.size() >= 2) {
    const int code = static_cast<uint8_t>(payload[0]) << 8 | static_cast<uint8_t>(payload[1]);
    why += " (" + std::to_string(code) + ")";
    if (payload.size() > 2) why += ": " + payload.substr(2);
  }
  return {StatusCode::kCancelled, why};
}

Result<std::string> MessageConnection::Receive() {
  std::string message;
  for (;;) {
    VOXRT_RETURN_IF_ERROR(Fill(2));
    const auto byte = [this](size_t i) { return static_cast<uint8_t>(buffer_[i]); };
    const uint8_t opcode = byte(0) & 15;
    const bool last = (byte(0) & 0x80) != 0;
    uint64_t size = byte(1) & 127;
    const size_t extra = size == 126 ? 2 : size == 127 ? 8 : 0;
    VOXRT_RETURN_IF_ERROR(Fill(2 + extra));
    if (extra != 0) size = 0;
    for (size_t i = 0; i < extra; ++i) size = size << 8 | byte(2 + i);
    if (size > kMaxMessageBytes - message.size())
      return Status(StatusCode::kIo, "the server sent a message that is too large");
    VOXRT_RETURN_IF_ERROR(Fill(2 + extra + size));
    const std::string payload = buffer_.substr(2 + extra, size);
    buffer_.erase(0, 2 + extra + size);
    if (opcode == 8) return CloseReason(payload);
    if (opcode == 9) VOXRT_RETURN_IF_ERROR(SendFrame(10, payload));
    if (opcode > 2) continue;
    message += payload;
    if (last) return message;
  }
}

class RemoteSession : public engine::Session {
 public:
  static Result<std::unique_ptr<RemoteSession>> Open(const RemoteOptions& options,
                                                     const engine::SessionOptions& session, std::string* model);
  ~RemoteSession() override;

  Result<size_t> Feed(std::span<const float> samples) override;
  Status FeedAll(std::span<const float> samples) override;
  Status Flush() override { return {StatusCode::kUnavailable, "a remote session cannot be flushed"}; }
  Status Finish() override;
  void Reset() override { Fail({StatusCode::kUnavailable, "a remote session cannot be reset; open another one"}); }
  bool Poll(std::vector<Event>* events) override { return Wait(events, std::chrono::milliseconds(0)); }
  bool Wait(std::vector<Event>* events, std::chrono::milliseconds timeout) override;
  void SetListener(std::function<void()> listener) override {
    const std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
  }
  engine::SessionStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  void ReadLoop();
  void OnMessage(const Json& event);
  void OnDone(const Json& message);
  void GiveDone();
  Status Send(const std::string& text);
  void Add(Event event);
  void Fail(const Status& status);

  std::unique_ptr<MessageConnection> connection_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Event> events_;
  std::function<void()> listener_;
  engine::SessionStats stats_;
  bool over_ = false;
  bool finishing_ = false;
  std::optional<Event> done_;  // the server's, until Finish asks for it
  Status failure_;
  std::atomic<bool> closing_{false};
  std::thread reader_;
};

Result<std::unique_ptr<RemoteSession>> RemoteSession::Open(const RemoteOptions& options,
                                                           const engine::SessionOptions& session, std::string* model) {
  if (session.temperature > 0.0f)
    return Status(StatusCode::kInvalidArgument, "--temperature does not work with --server; leave it out");
  auto remote = std::make_unique<RemoteSession>();
  VOXRT_ASSIGN_OR_RETURN(remote->connection_, MessageConnection::Open(options));
  VOXRT_ASSIGN_OR_RETURN(const std::string greeting, remote->connection_->Receive());
  const std::optional<Json> created = ParseJson(greeting);
  const Json* described = created ? Member(*created, "session") : nullptr;
  if (described == nullptr)
    return Status(StatusCode::kUnavailable, "the server at " + options.url + " is no voxrt server");
  *model = options.model.empty() ? StringMember(*described, "model").value_or("") : options.model;
  Json update = {{"type", "session.update"}, {"model", *model}, {"token_times", true}};
  if (session.delay_ms != 0) update["target_streaming_delay_ms"] = session.delay_ms;
  VOXRT_RETURN_IF_ERROR(remote->connection_->Send(Dump(update)));
  VOXRT_RETURN_IF_ERROR(remote->connection_->Send(R"({"type":"input_audio_buffer.commit"})"));
  remote->connection_->WaitForEver();  // text comes when there is speech
  remote->reader_ = std::thread([session_pointer = remote.get()] { session_pointer->ReadLoop(); });
  return remote;
}

RemoteSession::~RemoteSession() {
  closing_ = true;
  if (connection_ == nullptr) return;
  connection_->Close();
  connection_->Interrupt();
  if (reader_.joinable()) reader_.join();
}

Result<size_t> RemoteSession::Feed(std::span<const float> samples) {
  const size_t count = std::min(samples.size(), kChunkSamples);
  std::string bytes;
  bytes.reserve(count * 2);
  for (size_t i = 0; i < count; ++i) {
    const float sample = std::isfinite(samples[i]) ? std::clamp(samples[i] * 32768.0f, -32768.0f, 32767.0f) : 0.0f;
    const auto value = static_cast<int16_t>(std::lrint(sample));
    bytes += static_cast<char>(value);
    bytes += static_cast<char>(value >> 8);
  }
  VOXRT_RETURN_IF_ERROR(Send(R"({"type":"input_audio_buffer.append","audio":")" + EncodeBase64(bytes) + "\"}"));
  const std::lock_guard lock(mutex_);
  stats_.samples_fed += static_cast<int64_t>(count);
  return count;
}

Status RemoteSession::FeedAll(std::span<const float> samples) {
  while (!samples.empty()) {
    VOXRT_ASSIGN_OR_RETURN(const size_t taken, Feed(samples));
    samples = samples.subspan(taken);
  }
  return {};
}

// When the connection is gone, the reader knows better why, or soon will.
Status RemoteSession::Send(const std::string& text) {
  Status status = connection_->Send(text);
  if (status.ok()) return status;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kReasonWait, [&] { return over_; });
  return failure_.ok() ? status : failure_;
}

Status RemoteSession::Finish() {
  bool answered = false;
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
    answered = done_.has_value();
  }
  if (!answered) VOXRT_RETURN_IF_ERROR(Send(R"({"type":"input_audio_buffer.commit","final":true})"));
  GiveDone();
  return {};
}

bool RemoteSession::Wait(std::vector<Event>* events, std::chrono::milliseconds timeout) {
  events->clear();
  std::unique_lock lock(mutex_);
  if (events_.empty() && timeout.count() > 0) changed_.wait_for(lock, timeout, [&] { return !events_.empty(); });
  events->swap(events_);
  return !events->empty();
}

void RemoteSession::Add(Event event) {
  std::function<void()> listener;
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    over_ = event.type == EventType::kFinished || event.type == EventType::kError;
    if (event.type == EventType::kError) failure_ = event.status;
    events_.push_back(std::move(event));
    listener = listener_;
  }
  changed_.notify_all();
  if (listener) listener();
}

void RemoteSession::Fail(const Status& status) {
  Event event;
  event.type = EventType::kError;
  event.status = status;
  Add(std::move(event));
}

void RemoteSession::ReadLoop() {
  while (!closing_) {
    const Result<std::string> message = connection_->Receive();
    if (!message.ok()) return Fail({StatusCode::kIo, message.status().message()});
    const std::optional<Json> event = ParseJson(*message);
    if (!event) return Fail({StatusCode::kIo, "the server sent something that is no JSON"});
    OnMessage(*event);
  }
}

void RemoteSession::OnMessage(const Json& message) {
  const std::string type = StringMember(message, "type").value_or("");
  Event event;
  if (type == "transcription.delta") {
    event.text = StringMember(message, "delta").value_or("");
    const Json* end = Member(message, "end_ms");
    const Json* mark = Member(message, "word_mark");
    if (end != nullptr && end->is_number_integer()) event.end_ms = end->get<int64_t>();
    event.word_mark = mark != nullptr && mark->is_boolean() && mark->get<bool>();
    {
      const std::lock_guard lock(mutex_);
      event.index = stats_.tokens++;
    }
    Add(std::move(event));
  } else if (type == "transcription.done") {
    OnDone(message);
  } else if (type == "error") {
    Fail({StatusCode::kUnavailable, "the server says: " + StringMember(message, "error").value_or("error")});
  }
}

// A server that is going away ends a session before Finish: its text is given out, the end only when it holds
// everything.
void RemoteSession::OnDone(const Json& message) {
  const Json* usage = Member(message, "usage");
  const auto count = [usage](const char* key) {
    const Json* value = usage == nullptr ? nullptr : Member(*usage, key);
    return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : int64_t{0};
  };
  {
    const std::lock_guard lock(mutex_);
    stats_.prompt_tokens = count("prompt_tokens");
    stats_.tokens = count("completion_tokens");
    done_.emplace();
    done_->type = EventType::kFinished;
  }
  GiveDone();
}

void RemoteSession::GiveDone() {
  std::unique_lock lock(mutex_);
  if (!finishing_ || !done_) return;
  done_->end_ms = stats_.samples_fed / 16;
  const int64_t heard_samples = stats_.tokens * kTickSamples;
  if (stats_.tokens > 0 && heard_samples < stats_.samples_fed) {
    const Status status(StatusCode::kUnavailable,
                        "the server ended the session after " + std::to_string(heard_samples / 16000) + " of " +
                            std::to_string(stats_.samples_fed / 16000) + " s of audio; try again");
    lock.unlock();
    return Fail(status);
  }
  const Event event = *std::exchange(done_, std::nullopt);
  lock.unlock();
  Add(event);
}

class RemoteEngine : public engine::Engine {
 public:
  RemoteEngine(RemoteOptions options, std::string model) : options_(std::move(options)), model_(std::move(model)) {}

  Result<std::unique_ptr<engine::Session>> NewSession(const engine::SessionOptions& session) override {
    std::string model;
    VOXRT_ASSIGN_OR_RETURN(auto remote, RemoteSession::Open(options_, session, &model));
    return std::unique_ptr<engine::Session>(std::move(remote));
  }
  const weights::ModelConfig& config() const override { return config_; }
  const text::Tekken& tekken() const override { return tekken_; }
  engine::EngineInfo info() const override {
    engine::EngineInfo info;
    info.backend = "server";
    info.device = options_.url;
    info.model_path = model_;
    return info;
  }
  engine::EngineStats stats() const override { return {}; }
  Status health() const override { return {}; }

 private:
  const RemoteOptions options_;
  const std::string model_;
  weights::ModelConfig config_;
  text::Tekken tekken_;
};

}  // namespace

Result<std::shared_ptr<engine::Engine>> ConnectRemote(const RemoteOptions& options) {
  std::string model;
  VOXRT_ASSIGN_OR_RETURN(const auto probe, RemoteSession::Open(options, {}, &model));
  return std::shared_ptr<engine::Engine>(std::make_shared<RemoteEngine>(options, model));
}

}  // namespace voxrt::server
