// The remote engine against a scripted server: what it sends is fixed bytes, good or broken.
#include "server/client/remote_engine.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace voxrt::server {
namespace {

using engine::Event;
using engine::EventType;
using ::testing::HasSubstr;

constexpr char kSwitching[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

std::string Frame(const std::string& payload, int opcode = 1, bool last = true) {
  std::string frame(1, static_cast<char>((last ? 0x80 : 0) | opcode));
  if (payload.size() < 126) {
    frame += static_cast<char>(payload.size());
  } else {
    frame += static_cast<char>(126);
    frame += static_cast<char>(payload.size() >> 8);
    frame += static_cast<char>(payload.size());
  }
  return frame + payload;
}

std::string Greeting() {
  return kSwitching + Frame(R"({"type":"session.created","id":"sess-1","session":{"id":"sess-1","model":"demo"}})");
}

// Serves one connection after the other: reads the request, sends `answer`, then, when it was sent whole, reads to the
// end of what the client sends. `hang_up`: closes right after the answer instead.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::string answer, bool hang_up = false) : answer_(std::move(answer)), hang_up_(hang_up) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Loop(); });
  }
  ~ScriptedServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  // The script of the connections from now on.
  void Answer(std::string answer, bool hang_up = false) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
    hang_up_ = hang_up;
  }
  std::string url(const char* scheme = "http") const {
    return std::string(scheme) + "://127.0.0.1:" + std::to_string(port_);
  }
  int connections() const { return connections_; }
  // Connections that have ended, all they sent included.
  int ended() const { return ended_; }
  // Everything the clients sent after their requests.
  std::string received() {
    const std::lock_guard lock(mutex_);
    return received_;
  }

 private:
  void Loop() {
    for (int fd = 0; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; close(fd)) {
      ++connections_;
      std::string request;
      char bytes[4096];
      ssize_t count = 0;
      const auto complete = [&request] {  // a TLS greeting begins with byte 22 and is answered at once
        return request.find("\r\n\r\n") != std::string::npos || (!request.empty() && request[0] == 22);
      };
      while (!complete() && (count = recv(fd, bytes, sizeof(bytes), 0)) > 0)
        request.append(bytes, static_cast<size_t>(count));
      std::unique_lock lock(mutex_);
      const std::string answer = answer_;
      const bool hang_up = hang_up_;
      lock.unlock();
      send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
      if (hang_up) {
        shutdown(fd, SHUT_WR);
      }
      while ((count = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
        lock.lock();
        received_.append(bytes, static_cast<size_t>(count));
        lock.unlock();
      }
      ++ended_;
    }
  }

  std::mutex mutex_;
  std::string answer_, received_;
  bool hang_up_;
  int listener_ = -1, port_ = 0;
  std::atomic<int> connections_{0}, ended_{0};
  std::thread thread_;
};

// Why no engine comes up.
Status ConnectTo(const std::string& answer, bool hang_up = false, const char* scheme = "http") {
  const ScriptedServer server(answer, hang_up);
  return ConnectRemote({.url = server.url(scheme), .api_key = {}, .model = {}}).status();
}

// All events of a session to a server that greets and then sends `frames`.
std::vector<Event> EventsOf(const std::string& frames, bool hang_up = false, std::string* received = nullptr,
                            bool finish = true, size_t samples = 0) {
  ScriptedServer server(Greeting());
  const auto engine = ConnectRemote({.url = server.url(), .api_key = {}, .model = {}});
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  std::vector<Event> all;
  {
    server.Answer(Greeting() + frames, hang_up);
    auto session = (*engine)->NewSession({});
    EXPECT_TRUE(session.ok()) << session.status().message();
    if (samples > 0) (void)(*session)->FeedAll(std::vector<float>(samples)).ok();
    if (finish) (void)(*session)->Finish().ok();
    std::vector<Event> events;
    while (all.empty() || (all.back().type != EventType::kFinished && all.back().type != EventType::kError)) {
      if (!(*session)->Wait(&events, std::chrono::seconds(20))) {
        ADD_FAILURE() << "no event in time";
        break;
      }
      all.insert(all.end(), events.begin(), events.end());
    }
    EXPECT_FALSE((*session)->Wait(&events, std::chrono::milliseconds(0))) << "an event after the last one";
  }
  EXPECT_EQ(server.connections(), 2) << "one to ask, one for the session, none to come back";
  while (server.ended() < 2) std::this_thread::yield();
  if (received != nullptr) *received = server.received();
  return all;
}

TEST(RemoteEngine, ARefusalIsToldWithTheServersReason) {
  const Status status = ConnectTo(
      "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n\r\n{\"error\":{\"message\":\"no such key\"}}",
      true);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("401 Unauthorized"));
  EXPECT_THAT(status.message(), HasSubstr("no such key"));
}

TEST(RemoteEngine, OtherServersAreRecognised) {
  EXPECT_THAT(ConnectTo("HTTP/1.1 200 OK\r\n\r\n<html>", true).message(), HasSubstr("200 OK"));
  EXPECT_THAT(ConnectTo("SSH-2.0-OpenSSH\r\n", true).message(), HasSubstr("ended the connection"));
  EXPECT_THAT(ConnectTo(std::string(200000, 'x')).message(), HasSubstr("does not answer like a server"));
  EXPECT_THAT(ConnectTo(kSwitching + Frame(R"({"hello":1})")).message(), HasSubstr("is no voxrt server"));
  EXPECT_THAT(ConnectTo(kSwitching + Frame("hello")).message(), HasSubstr("is no voxrt server"));
  EXPECT_THAT(ConnectTo("", true).message(), HasSubstr("ended the connection"));
}

TEST(RemoteEngine, TlsToAPlainServerIsRefused) {
  const Status status = ConnectTo("HTTP/1.1 400 Bad Request\r\n\r\n\r\n\r\n", true, "https");
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("no TLS connection"));
}

TEST(RemoteEngine, NobodyListens) {
  std::string url;
  { url = ScriptedServer("").url(); }
  EXPECT_THAT(ConnectRemote({.url = url, .api_key = {}, .model = {}}).status().message(), HasSubstr("cannot connect"));
}

TEST(RemoteEngine, BadAddressesAreNamed) {
  for (const char* url : {"", "127.0.0.1:8000", "ftp://x", "http://", "http://x:0", "http://x:99999", "http://a b"}) {
    const Status status = ConnectRemote({.url = url, .api_key = {}, .model = {}}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(status.message(), HasSubstr("expected http://HOST:PORT")) << url;
  }
}

TEST(RemoteEngine, DeltasAndTheEndBecomeEvents) {
  const std::vector<Event> events = EventsOf(
      Frame(R"({"type":"transcription.delta","delta":"","end_ms":80,"word_mark":true})") +
      Frame(R"({"type":"something.new"})") +
      Frame(R"({"type":"transcription.delta","delta":" Hi","end_ms":160,"word_mark":false})") +
      Frame(R"({"type":"transcription.done","text":" Hi","usage":{"prompt_tokens":39,"completion_tokens":12}})"));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_TRUE(events[0].word_mark);
  EXPECT_EQ(events[1].text, " Hi");
  EXPECT_EQ(events[1].end_ms, 160);
  EXPECT_EQ(events[1].index, 1);
  EXPECT_EQ(events[2].type, EventType::kFinished);
}

TEST(RemoteEngine, FragmentsAreJoinedAndPingsAnswered) {
  std::string received;
  const std::vector<Event> events = EventsOf(Frame(R"({"type":"transcription.del)", 1, false) + Frame("tick", 9) +
                                                 Frame(R"(ta","delta":"a)", 0, false) + Frame(R"(b","end_ms":80})", 0) +
                                                 Frame(R"({"type":"transcription.done","text":"ab"})"),
                                             false, &received);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].text, "ab");
  EXPECT_THAT(received, HasSubstr(std::string("\x8A\x84", 2))) << "a masked pong of four bytes";
}

TEST(RemoteEngine, AnErrorEventEndsTheSessionWithItsMessage) {
  const std::vector<Event> events =
      EventsOf(Frame(R"({"type":"error","error":"too far behind","code":"buffer_full"})"));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].type, EventType::kError);
  EXPECT_THAT(events[0].status.message(), HasSubstr("the server says: too far behind"));
}

TEST(RemoteEngine, ACloseEndsTheSessionWithCodeAndReason) {
  const std::vector<Event> events = EventsOf(Frame(std::string("\x03\xE9", 2) + "The server is going away", 8));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].type, EventType::kError);
  EXPECT_EQ(events[0].status.message(), "the server closed the session (1001): The server is going away");
  EXPECT_EQ(EventsOf(Frame("", 8)).back().status.message(), "the server closed the session");
}

TEST(RemoteEngine, AServerThatEndsASessionEarlyIsNoEnd) {
  const std::string early =
      Frame(R"({"type":"transcription.delta","delta":" Hi","end_ms":160})") +
      Frame(R"({"type":"transcription.done","text":" Hi","usage":{"prompt_tokens":39,"completion_tokens":12}})") +
      Frame(std::string("\x03\xE9", 2) + "The server is going away", 8);
  std::vector<Event> events = EventsOf(early, false, nullptr, false);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].text, " Hi");
  EXPECT_EQ(events[1].type, EventType::kError);
  EXPECT_THAT(events[1].status.message(), HasSubstr("(1001): The server is going away"));
  const std::string unclosed = early.substr(0, early.find('\x88'));
  events = EventsOf(unclosed, false, nullptr, true, 16000 * 5);  // 12 ticks are not 5 s
  EXPECT_EQ(events.back().status.message(), "the server ended the session after 0 of 5 s of audio; try again");
  EXPECT_EQ(EventsOf(unclosed, false, nullptr, true, 1280 * 12).back().type, EventType::kFinished);
}

TEST(RemoteEngine, BrokenFramesEndTheSession) {
  EXPECT_THAT(EventsOf(Frame("no json")).back().status.message(), HasSubstr("no JSON"));
  EXPECT_THAT(EventsOf(std::string("\x81\x7F\x00\x00\x01\x00\x00\x00\x00\x00", 10)).back().status.message(),
              HasSubstr("too large"));
  EXPECT_THAT(EventsOf(std::string("\x81\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 10)).back().status.message(),
              HasSubstr("too large"));
  EXPECT_THAT(EventsOf(Frame("a", 1, false) + std::string("\x80\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 10))
                  .back()
                  .status.message(),
              HasSubstr("too large"));
  EXPECT_THAT(EventsOf(std::string("\x81\x7E\x01", 3), true).back().status.message(),
              HasSubstr("ended the connection"));
  EXPECT_THAT(EventsOf(Frame(R"({"type":)", 1, false), true).back().status.message(),
              HasSubstr("ended the connection"));
}

TEST(RemoteEngine, WhatARemoteServerCannotDoIsSaid) {
  ScriptedServer server(Greeting());
  const auto engine = ConnectRemote({.url = server.url(), .api_key = {}, .model = {}});
  ASSERT_TRUE(engine.ok());
  EXPECT_THAT((*engine)->NewSession({.temperature = 0.5f}).status().message(), HasSubstr("--temperature"));
  EXPECT_THAT(ConnectRemote({.url = server.url(), .api_key = "a\r\nb", .model = {}}).status().message(),
              HasSubstr("line break"));
}

}  // namespace
}  // namespace voxrt::server
