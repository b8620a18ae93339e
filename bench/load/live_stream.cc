#include "live_stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "audio/source.h"
#include "base/base64.h"
#include "base/json.h"

namespace voxrt::bench {
namespace {

constexpr int64_t kLookAheadSamples = 40;  // of the mel window: what the model hears beyond a step's own audio
constexpr int kGapSamples = kRate / 2;     // silence between two clips
constexpr size_t kMaxFrameBytes = size_t{16} << 20;

double Milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

// Clients must mask. A key of zeros changes no byte, so that a frame can be made once; the server unmasks it as any
// other.
std::string ClientFrame(int opcode, std::string_view payload) {
  std::string frame(1, static_cast<char>(0x80 | opcode));
  const size_t size = payload.size();
  if (size < 126) {
    frame += static_cast<char>(0x80 | size);
  } else {
    const int bytes = size < 65536 ? 2 : 8;
    frame += static_cast<char>(0x80 | (bytes == 2 ? 126 : 127));
    for (int i = bytes - 1; i >= 0; --i) frame += static_cast<char>(size >> (8 * i));
  }
  frame.append(4, '\0');
  return frame.append(payload);
}

Status AppendClip(const std::string& path, std::vector<int16_t>* samples) {
  VOXRT_ASSIGN_OR_RETURN(const auto source, audio::OpenFile(path, {}));
  std::vector<float> block(16384);
  for (;;) {
    VOXRT_ASSIGN_OR_RETURN(const size_t count, source->Read(block));
    if (count == 0) break;
    for (size_t i = 0; i < count; ++i) {
      samples->push_back(static_cast<int16_t>(std::lrint(std::clamp(block[i] * 32768.0f, -32768.0f, 32767.0f))));
    }
  }
  samples->insert(samples->end(), kGapSamples, 0);
  return {};
}

}  // namespace

Result<Track> MakeTrack(const std::vector<std::string>& clips, size_t first) {
  Track track;
  for (size_t i = 0; i < clips.size(); ++i)
    VOXRT_RETURN_IF_ERROR(AppendClip(clips[(first + i) % clips.size()], &track.samples));
  const size_t chunks = (track.samples.size() + kChunkSamples - 1) / kChunkSamples;
  track.samples.resize(chunks * kChunkSamples);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    std::string bytes;
    for (size_t i = 0; i < kChunkSamples; ++i) {
      const auto value = static_cast<uint16_t>(track.samples[chunk * kChunkSamples + i]);
      bytes += static_cast<char>(value & 0xFF);
      bytes += static_cast<char>(value >> 8);
    }
    track.frames.push_back(
        ClientFrame(1, R"({"type":"input_audio_buffer.append","audio":")" + base::EncodeBase64(bytes) + "\"}"));
  }
  return track;
}

Result<std::unique_ptr<LiveStream>> LiveStream::Open(const std::string& host, int port, const std::string& api_key,
                                                     StreamPlan plan) {
  std::unique_ptr<LiveStream> stream(new LiveStream(plan));
  VOXRT_RETURN_IF_ERROR(stream->Connect(host, port));
  VOXRT_RETURN_IF_ERROR(stream->Greet(host, port, api_key));
  fcntl(stream->fd_, F_SETFL, O_NONBLOCK);
  return stream;
}

LiveStream::~LiveStream() {
  if (fd_ >= 0) close(fd_);
}

Status LiveStream::Connect(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
    return {StatusCode::kInvalidArgument, "the server must be given by its IPv4 address, found '" + host + "'"};
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return {StatusCode::kIo, std::string("no socket: ") + std::strerror(errno)};
  const timeval limit{.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return {StatusCode::kIo, fmt::format("cannot connect to {} port {}: {}", host, port, std::strerror(errno))};
  return {};
}

Status LiveStream::Greet(const std::string& host, int port, const std::string& api_key) {
  std::string request = fmt::format(
      "GET /v1/realtime HTTP/1.1\r\nHost: {}:{}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n",
      host, port, base::EncodeBase64(std::string(16, 'v')));
  if (!api_key.empty()) request += "Authorization: Bearer " + api_key + "\r\n";
  Send(request + "\r\n");
  size_t end = 0;
  while ((end = inbound_.find("\r\n\r\n")) == std::string::npos) VOXRT_RETURN_IF_ERROR(ReadMore());
  if (!inbound_.starts_with("HTTP/1.1 101"))
    return {StatusCode::kUnavailable, "the server refuses: " + inbound_.substr(0, inbound_.find("\r\n"))};
  inbound_.erase(0, end + 4);
  int opcode = 0;
  std::string greeting;
  while (!NextFrame(&opcode, &greeting)) VOXRT_RETURN_IF_ERROR(ReadMore());
  const Result<base::Json> created = base::ParseJson(greeting);
  const base::Json* session = created.ok() ? created->Find("session") : nullptr;
  const base::Json* model = session == nullptr ? nullptr : session->Find("model");
  if (model == nullptr || model->AsString() == nullptr)
    return {StatusCode::kUnavailable, "the server greets with " + base::QuoteForMessage(greeting)};
  const base::Json update = base::Json::MakeObject({{"type", "session.update"},
                                                    {"model", *model->AsString()},
                                                    {"token_times", true},
                                                    {"target_streaming_delay_ms", plan_.delay_ms}});
  Send(ClientFrame(1, update.Dump()));
  Send(ClientFrame(1, R"({"type":"input_audio_buffer.commit"})"));
  return {};
}

// Blocking, for the greeting.
Status LiveStream::ReadMore() {
  char bytes[4096];
  const ssize_t count = recv(fd_, bytes, sizeof(bytes), 0);
  if (count <= 0) return {StatusCode::kIo, "the server gives no greeting"};
  inbound_.append(bytes, static_cast<size_t>(count));
  return {};
}

// False when the next frame is not complete.
bool LiveStream::NextFrame(int* opcode, std::string* payload) {
  const auto byte = [this](size_t i) { return static_cast<uint8_t>(inbound_[i]); };
  if (inbound_.size() < 2) return false;
  size_t size = byte(1) & 127;
  const size_t extra = size == 126 ? 2 : size == 127 ? 8 : 0;
  if (inbound_.size() < 2 + extra) return false;
  if (extra != 0) size = 0;
  for (size_t i = 0; i < extra; ++i) size = size << 8 | byte(2 + i);
  if (size > kMaxFrameBytes) {
    Fail("the server sent a frame that is too large");
    return false;
  }
  if (inbound_.size() < 2 + extra + size) return false;
  *opcode = byte(0) & 15;
  *payload = inbound_.substr(2 + extra, size);
  inbound_.erase(0, 2 + extra + size);
  return true;
}

Clock::time_point LiveStream::due() const {
  if (over_ || ended_) return Clock::time_point::max();
  return plan_.start + (chunks_sent() + 1) * kChunkTime;  // a chunk can be sent when its last sample was spoken
}

void LiveStream::SendDue(Clock::time_point now) {
  while (due() <= now) {
    if (chunks_sent() == plan_.chunks) {
      ended_ = true;
      ended_at_ = now;
      return Send(ClientFrame(1, R"({"type":"input_audio_buffer.commit","final":true})"));
    }
    send_late_ms_.push_back(static_cast<float>(Milliseconds(now - due())));
    const auto period = static_cast<int64_t>(plan_.track->frames.size());
    const std::string& frame = plan_.track->frames[static_cast<size_t>(chunks_sent() % period)];
    sent_at_.push_back(now);
    Send(frame);
  }
}

void LiveStream::Send(std::string_view bytes) {
  if (over_) return;
  if (outbound_.empty()) {
    const ssize_t count = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR)
      return Fail(std::string("cannot send: ") + std::strerror(errno));
    if (count > 0) bytes.remove_prefix(static_cast<size_t>(count));
  }
  outbound_.append(bytes);
}

void LiveStream::OnWritable() {
  const std::string waiting = std::exchange(outbound_, {});
  Send(waiting);
}

void LiveStream::OnReadable() {
  char bytes[16384];
  const ssize_t count = recv(fd_, bytes, sizeof(bytes), 0);
  const Clock::time_point now = Clock::now();
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return Fail("the server ended the connection");
  inbound_.append(bytes, static_cast<size_t>(count));
  int opcode = 0;
  std::string payload;
  while (!over_ && NextFrame(&opcode, &payload)) {
    if (opcode == 1) {
      OnMessage(payload, now);
    } else if (opcode == 9) {
      Send(ClientFrame(10, payload));
    } else if (opcode == 8) {
      Fail("the server closed: " + (payload.size() > 2 ? payload.substr(2) : "no reason"));
    }
  }
}

void LiveStream::OnMessage(std::string_view message, Clock::time_point now) {
  const Result<base::Json> parsed = base::ParseJson(message);
  const auto string = [&parsed](const char* key) {
    const base::Json* value = parsed.ok() ? parsed->Find(key) : nullptr;
    return value == nullptr || value->AsString() == nullptr ? std::string() : *value->AsString();
  };
  const std::string type = string("type");
  if (type == "transcription.delta") {
    const std::string delta = string("delta");
    const base::Json* end = parsed->Find("end_ms");
    if (end == nullptr || !end->AsInt()) return Fail("a delta without end_ms: the server knows no token_times");
    deltas_ += delta;
    const int64_t needed = (*end->AsInt() + plan_.delay_ms) * (kRate / 1000);
    // Text of the last delay before the end comes from padding, not from audio that was sent.
    if (delta.empty() || needed + kLookAheadSamples > plan_.chunks * kChunkSamples) return;
    if (needed > chunks_sent() * kChunkSamples) return Fail("text came before the audio it needs");
    lags_.push_back({now, SinceSent(needed, now), SinceSent(needed + kLookAheadSamples, now)});
  } else if (type == "transcription.done") {
    text_ = string("text");
    if (text_ != deltas_) return Fail("the final text is not the concatenation of the deltas");
    final_ms_ = Milliseconds(now - ended_at_);
    over_ = true;
  } else {
    Fail("the server sent " + base::QuoteForMessage(message));
  }
}

// Since the chunk was sent that ends with or holds the sample before `sample`.
double LiveStream::SinceSent(int64_t sample, Clock::time_point now) const {
  const auto chunk = static_cast<size_t>((sample - 1) / kChunkSamples);
  return chunk < sent_at_.size() ? Milliseconds(now - sent_at_[chunk]) : 0.0;
}

void LiveStream::Fail(std::string why) {
  if (over_) return;
  over_ = true;
  failure_ = std::move(why);
}

}  // namespace voxrt::bench
