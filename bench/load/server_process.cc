#include "server_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace voxrt::bench {
namespace {

constexpr auto kStartLimit = std::chrono::seconds(60);
constexpr auto kLook = std::chrono::milliseconds(50);

// The port in the line "server.ready ... port=N ...", or 0.
int ReadyPort(const std::string& log_path) {
  std::ifstream log(log_path);
  for (std::string line; std::getline(log, line);) {
    const size_t at = line.find(" port=");
    if (line.find("server.ready") != std::string::npos && at != std::string::npos) return std::atoi(&line[at + 6]);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<ServerProcess>> ServerProcess::Start(const std::string& program,
                                                            const std::vector<std::string>& arguments,
                                                            const std::string& log_path) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log < 0) return Status(StatusCode::kIo, "cannot write " + log_path + ": " + std::strerror(errno));
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(log, STDERR_FILENO);
    dup2(log, STDOUT_FILENO);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  close(log);
  if (pid < 0) return Status(StatusCode::kIo, std::string("cannot start a process: ") + std::strerror(errno));
  std::unique_ptr<ServerProcess> server(new ServerProcess(pid));
  const auto deadline = std::chrono::steady_clock::now() + kStartLimit;
  while ((server->port_ = ReadyPort(log_path)) == 0) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) {
      server->running_ = false;
      return Status(StatusCode::kUnavailable,
                    fmt::format("{} ended before it was ready; its log is {}", program, log_path));
    }
    if (std::chrono::steady_clock::now() > deadline)
      return Status(StatusCode::kUnavailable, fmt::format("{} did not get ready; its log is {}", program, log_path));
    std::this_thread::sleep_for(kLook);
  }
  return server;
}

ServerProcess::~ServerProcess() { Stop(); }

int ServerProcess::Stop() {
  if (!running_) return -1;
  running_ = false;
  kill(pid_, SIGTERM);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Result<MetricValues> ScrapeMetrics(const std::string& host, int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  const timeval limit{.tv_sec = 5, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  const std::string request = fmt::format("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", host);
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    char bytes[16384];
    for (ssize_t n = 0; (n = recv(fd, bytes, sizeof(bytes), 0)) > 0;) answer.append(bytes, static_cast<size_t>(n));
  }
  close(fd);
  if (!answer.starts_with("HTTP/1.1 200")) return Status(StatusCode::kIo, "no answer from /metrics");
  MetricValues values;
  std::istringstream lines(answer.substr(answer.find("\r\n\r\n")));
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == std::string::npos) continue;
    values[line.substr(0, space)] = std::strtod(line.c_str() + space, nullptr);
  }
  return values;
}

double MetricValue(const MetricValues& values, std::string_view name, std::string_view label) {
  const std::string prefix = std::string(name) + "{";
  for (auto it = values.lower_bound(prefix); it != values.end() && it->first.starts_with(prefix); ++it) {
    if (label.empty() || it->first.find(label) != std::string::npos) return it->second;
  }
  return 0.0;
}

std::optional<ProcessUsage> ReadProcessUsage(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 2));  // from the third field on
  std::vector<std::string> field;
  for (std::string word; fields >> word;) field.push_back(word);
  if (field.size() < 22) return std::nullopt;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK)), page = static_cast<double>(sysconf(_SC_PAGESIZE));
  return ProcessUsage{.cpu_seconds = (std::atof(field[11].c_str()) + std::atof(field[12].c_str())) / ticks,
                      .resident_bytes = std::atof(field[21].c_str()) * page};
}

}  // namespace voxrt::bench
