// load: paced live streams against a `voxrt serve` over loopback, as many clients with a microphone each would send
// them: 80 ms of sound every 80 ms. Reports how far the text trails, late ticks, CPU time and memory of the server, and
// whether every stream's text is what `voxrt transcribe` makes of the same sound.
//
//   load --spawn --streams 64 --seconds 100           starts the voxrt beside it, with --max-sessions 64; more
//                                                     flags for it follow after --
//   load --spawn --streams 8 --minutes 60             soak: memory slope, CPU time per second of audio over time
//   load --server 127.0.0.1:8000 --streams 8          a server that runs already (its --max-sessions must allow it)
//
// Lag of a piece of text that ends at E ms of its stream, with delay D:
//   beyond_delay = its arrival - the time at which the sample at E + D was sent. The model hears 2.5 ms beyond that, so
//                  with chunks of 80 ms it waits for the next chunk: 80 ms of this are the client's own pace.
//   beyond_need  = its arrival - the time at which the last sample that it needs was sent.
// A tick is late when its token came more than 80 ms after the audio it needs arrived at the server (/metrics).
#include <fmt/format.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "load_report.h"

namespace voxrt::bench {
namespace {

using base::Json;

struct Options {
  bool spawn = false;
  std::string server, api_key, voxrt, server_log;
  std::string clips = "models/demo/clips";
  int streams = 8;
  double seconds = 60.0, minutes = 0.0;
  int delay_ms = 480, tracks = 8, stagger_ms = 137, sample_s = 5, pid = 0;
  bool no_text_check = false;
  std::vector<std::string> serve_arguments;
};

struct Server {
  std::string host = "127.0.0.1";
  int port = 0;
  pid_t pid = 0;  // 0: unknown, its own figures are taken
  std::unique_ptr<ServerProcess> process;
  std::string command;  // of process
};

Result<Server> FindServer(const Options& options) {
  Server server;
  if (!options.spawn) {
    const size_t colon = options.server.rfind(':');
    server.host = options.server.substr(0, colon);
    server.port = colon == std::string::npos ? 0 : std::atoi(options.server.c_str() + colon + 1);
    server.pid = options.pid;
    if (server.port <= 0) return Status(StatusCode::kInvalidArgument, "give --spawn or --server ADDRESS:PORT");
    return server;
  }
  std::vector<std::string> arguments = {"serve", "--port", "0", "--max-sessions", std::to_string(options.streams)};
  arguments.insert(arguments.end(), options.serve_arguments.begin(), options.serve_arguments.end());
  server.command = "voxrt";
  for (const std::string& argument : arguments) server.command += " " + argument;
  fmt::print(stderr, "load: starting {}\n", server.command);
  VOXRT_ASSIGN_OR_RETURN(server.process, ServerProcess::Start(options.voxrt, arguments, options.server_log));
  server.port = server.process->port();
  server.pid = server.process->pid();
  return server;
}

Result<Sample> TakeSample(const Server& server) {
  Sample sample;
  VOXRT_ASSIGN_OR_RETURN(sample.metrics, ScrapeMetrics(server.host, server.port));
  sample.at = Clock::now();
  sample.usage = {.cpu_seconds = MetricValue(sample.metrics, "voxrt_cpu_seconds"),
                  .resident_bytes = MetricValue(sample.metrics, "voxrt_resident_bytes")};
  if (server.pid != 0) {
    if (const auto usage = ReadProcessUsage(server.pid)) sample.usage = *usage;
  }
  return sample;
}

// Asks the server every few seconds, on a thread of its own: the streams' thread must not wait.
class Sampler {
 public:
  Sampler(const Server& server, int every_s) : server_(server), every_s_(every_s), thread_([this] { Run(); }) {}
  ~Sampler() { Stop(); }
  std::vector<Sample> Stop() {
    if (thread_.joinable()) {
      over_ = true;
      thread_.join();
    }
    return samples_;
  }

 private:
  void Run() {
    Clock::time_point next = Clock::now();
    for (;;) {
      const bool last = over_;
      if (last || Clock::now() >= next) {
        Result<Sample> sample = TakeSample(server_);
        if (sample.ok()) samples_.push_back(std::move(*sample));
        next += std::chrono::seconds(every_s_);
      }
      if (last) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  const Server& server_;
  const int every_s_;
  std::atomic<bool> over_{false};
  std::vector<Sample> samples_;
  std::thread thread_;
};

// One thread: sends what is due, reads what comes, until every stream has its final text or failed.
class Loop {
 public:
  explicit Loop(Streams* streams)
      : streams_(*streams),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    Watch(EPOLL_CTL_ADD, timer_, EPOLLIN, streams_.size());
    for (size_t i = 0; i < streams_.size(); ++i) Watch(EPOLL_CTL_ADD, streams_[i]->fd(), EPOLLIN, i);
    writes_.resize(streams_.size());
    done_.resize(streams_.size());
  }
  ~Loop() {
    close(timer_);
    close(epoll_);
  }

  void Run() {
    size_t running = streams_.size();
    std::vector<epoll_event> events(streams_.size() + 1);
    while (running > 0) {
      SetTimer();
      const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 1000);
      for (int i = 0; i < count; ++i) {
        const size_t index = events[static_cast<size_t>(i)].data.u64;
        const uint32_t what = events[static_cast<size_t>(i)].events;
        if (index == streams_.size()) continue;  // the timer
        if ((what & EPOLLOUT) != 0) streams_[index]->OnWritable();
        if ((what & ~static_cast<uint32_t>(EPOLLOUT)) != 0) streams_[index]->OnReadable();
      }
      for (size_t i = 0; i < streams_.size(); ++i) {
        streams_[i]->SendDue(Clock::now());
        Update(i, &running);
      }
    }
  }

 private:
  void Watch(int operation, int fd, uint32_t what, size_t index) const {
    epoll_event event{};
    event.events = what;
    event.data.u64 = index;
    epoll_ctl(epoll_, operation, fd, &event);
  }

  void Update(size_t i, size_t* running) {
    if (done_[i]) return;
    if (streams_[i]->over()) {
      done_[i] = true;
      --*running;
      Watch(EPOLL_CTL_DEL, streams_[i]->fd(), 0, i);
    } else if (writes_[i] != streams_[i]->wants_write()) {
      writes_[i] = streams_[i]->wants_write();
      Watch(EPOLL_CTL_MOD, streams_[i]->fd(), EPOLLIN | (writes_[i] ? static_cast<uint32_t>(EPOLLOUT) : 0U), i);
    }
  }

  void SetTimer() const {
    Clock::time_point next = Clock::time_point::max();
    for (const auto& stream : streams_) next = std::min(next, stream->due());
    itimerspec when{};
    if (next != Clock::time_point::max()) {
      const auto at = std::chrono::duration_cast<std::chrono::nanoseconds>(next.time_since_epoch()).count();
      when.it_value = {.tv_sec = at / 1'000'000'000, .tv_nsec = at % 1'000'000'000};
    }
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
  }

  Streams& streams_;
  const int epoll_;
  const int timer_;
  std::vector<bool> writes_, done_;
};

std::string Trimmed(const std::string& text) {
  const char* blanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(blanks);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// What `voxrt transcribe` makes of the first `chunks` of a track.
Result<std::string> ExpectedText(const Options& options, const Track& track, int64_t chunks) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("voxrt-load-{}.raw", getpid())).string();
  {
    std::ofstream file(path, std::ios::binary);
    const auto period = static_cast<int64_t>(track.frames.size());
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      file.write(reinterpret_cast<const char*>(track.samples.data() + chunk % period * kChunkSamples),
                 kChunkSamples * sizeof(int16_t));
    }
    if (!file) return Status(StatusCode::kIo, "cannot write " + path);
  }
  std::string command =
      fmt::format("'{}' transcribe --quiet --format s16le --delay-ms {}", options.voxrt, options.delay_ms);
  const auto model =
      std::find_if(options.serve_arguments.begin(), options.serve_arguments.end(),
                   [](const std::string& argument) { return argument == "--model" || argument == "-m"; });
  if (model != options.serve_arguments.end() && model + 1 != options.serve_arguments.end())
    command += fmt::format(" --model '{}'", *(model + 1));
  FILE* pipe = popen((command + " '" + path + "'").c_str(), "re");
  std::string text;
  char bytes[4096];
  for (size_t n = 0; pipe != nullptr && (n = fread(bytes, 1, sizeof(bytes), pipe)) > 0;) text.append(bytes, n);
  const int status = pipe == nullptr ? -1 : pclose(pipe);
  std::filesystem::remove(path);
  if (status != 0) return Status(StatusCode::kInternal, options.voxrt + " transcribe failed");
  return Trimmed(text);
}

Result<Json> CheckTexts(const Options& options, const Streams& streams, const std::vector<Track>& tracks,
                        int64_t chunks) {
  size_t equal = 0, characters = 0;
  for (size_t t = 0; t < std::min(tracks.size(), streams.size()); ++t) {
    VOXRT_ASSIGN_OR_RETURN(const std::string expected, ExpectedText(options, tracks[t], chunks));
    if (expected.empty()) return Status(StatusCode::kInternal, "the expected text is empty");
    for (size_t i = t; i < streams.size(); i += tracks.size()) {
      const std::string found = Trimmed(streams[i]->text());
      characters += found.size();
      equal += found == expected ? 1 : 0;
      if (found == expected) continue;
      const size_t at = static_cast<size_t>(
          std::mismatch(found.begin(), found.end(), expected.begin(), expected.end()).first - found.begin());
      fmt::print(stderr, "load: stream {} differs from the expected text at character {}: {} instead of {}\n", i, at,
                 base::QuoteForMessage(found.substr(at, 40)), base::QuoteForMessage(expected.substr(at, 40)));
    }
  }
  return Json::MakeObject({{"streams", streams.size()}, {"equal", equal}, {"characters", characters}});
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return Trimmed(line.substr(line.find(':') + 1));
  }
  return "unknown";
}

Result<Json> Measure(const Options& options) {
  std::vector<std::string> clips;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options.clips, error)) {
    if (entry.path().extension() == ".wav") clips.push_back(entry.path().string());
  }
  std::sort(clips.begin(), clips.end());
  if (clips.empty())
    return Status(StatusCode::kNotFound, "no clips in " + options.clips + "; name their folder with --clips");
  std::vector<Track> tracks;
  for (int t = 0; t < std::min(options.tracks, options.streams); ++t) {
    VOXRT_ASSIGN_OR_RETURN(Track track, MakeTrack(clips, static_cast<size_t>(t)));
    tracks.push_back(std::move(track));
  }
  VOXRT_ASSIGN_OR_RETURN(Server server, FindServer(options));
  const double seconds = options.minutes > 0.0 ? options.minutes * 60.0 : options.seconds;
  const auto chunks = static_cast<int64_t>(seconds * 12.5);

  Streams streams;
  const Clock::time_point start =
      Clock::now() + std::chrono::seconds(1) + options.streams * std::chrono::milliseconds(5);
  for (int i = 0; i < options.streams; ++i) {
    const StreamPlan plan{.track = &tracks[static_cast<size_t>(i) % tracks.size()],
                          .chunks = chunks,
                          .delay_ms = options.delay_ms,
                          .start = start + i * std::chrono::milliseconds(options.stagger_ms)};
    VOXRT_ASSIGN_OR_RETURN(auto stream, LiveStream::Open(server.host, server.port, options.api_key, plan));
    streams.push_back(std::move(stream));
  }
  Sampler sampler(server, options.sample_s);
  Loop(&streams).Run();
  const std::vector<Sample> samples = sampler.Stop();

  size_t failed = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[i]->failure().empty()) continue;
    ++failed;
    fmt::print(stderr, "load: stream {}: {}\n", i, streams[i]->failure());
  }
  Json result = Json::MakeObject({{"failed_streams", failed},
                                  {"lag", LagReport(streams)},
                                  {"server", ServerReport(samples, std::min(300.0, seconds / 2.0))},
                                  {"minutes", MinuteReport(streams, samples)}});
  if (server.process != nullptr) result["server_command"] = server.command;
  if (server.process != nullptr) result["server_exit_code"] = server.process->Stop();
  if (!options.no_text_check) {
    VOXRT_ASSIGN_OR_RETURN(result["text"], CheckTexts(options, streams, tracks, chunks));
  }
  return result;
}

int Main(int argc, char** argv) {
  Options options;
  options.voxrt = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "voxrt").string();
  options.server_log = (std::filesystem::temp_directory_path() / fmt::format("voxrt-load-{}.log", getpid())).string();
  CLI::App app("Paced live streams against voxrt serve");
  app.add_flag("--spawn", options.spawn,
               "Start the voxrt beside this program with --max-sessions as many as --streams; what follows -- are more "
               "flags of its serve");
  app.add_option("--server", options.server, "Or one that runs: ADDRESS:PORT");
  app.add_option("--pid", options.pid, "Its process, for /proc; else its own figures are taken");
  app.add_option("--api-key", options.api_key, "Its key");
  app.add_option("--voxrt", options.voxrt, "The program to start and to compare texts with");
  app.add_option("--server-log", options.server_log, "Where the started server logs")->capture_default_str();
  app.add_option("--clips", options.clips, "Folder of the clips that are played in a loop")->capture_default_str();
  app.add_option("--streams", options.streams, "Streams at the same time")->check(CLI::Range(1, 4096));
  app.add_option("--seconds", options.seconds, "Audio of each stream")->capture_default_str();
  app.add_option("--minutes", options.minutes, "The same in minutes");
  app.add_option("--delay-ms", options.delay_ms, "Delay to ask for")->capture_default_str();
  app.add_option("--tracks", options.tracks, "Different recordings; streams beyond share them")
      ->check(CLI::Range(1, 64));
  app.add_option("--stagger-ms", options.stagger_ms, "Between the starts of two streams")->capture_default_str();
  app.add_option("--sample-seconds", options.sample_s, "Between two looks at the server")->check(CLI::Range(1, 60));
  app.add_flag("--no-text-check", options.no_text_check, "Do not compare the texts");
  app.add_option("serve", options.serve_arguments, "Flags of serve, after --");
  CLI11_PARSE(app, argc, argv);

  utsname system{};
  uname(&system);
  Json result = Json::MakeObject(
      {{"machine",
        Json::MakeObject(
            {{"cpu", CpuName()}, {"threads", std::thread::hardware_concurrency()}, {"kernel", system.release}})},
       // Real-time scheduling (chrt -r 1) keeps the other processes of a busy machine out of the measurement.
       {"scheduling", sched_getscheduler(0) == SCHED_OTHER ? "normal" : "real time"},
       {"load", Json::MakeObject({{"streams", options.streams},
                                  {"audio_s", options.minutes > 0.0 ? options.minutes * 60.0 : options.seconds},
                                  {"delay_ms", options.delay_ms},
                                  {"tracks", std::min(options.tracks, options.streams)},
                                  {"stagger_ms", options.stagger_ms}})}});
  const Result<Json> measured = Measure(options);
  if (!measured.ok()) {
    fmt::print(stderr, "load: {}\n", measured.status().message());
    return 1;
  }
  for (const auto& [key, value] : *measured->AsObject()) result[key] = value;
  fmt::print("{}\n", result.Dump(2));
  const Json* text = result.Find("text");
  const bool equal = text == nullptr || *text->Find("equal") == *text->Find("streams");
  return equal && *result.Find("failed_streams") == Json(0) ? 0 : 1;
}

}  // namespace
}  // namespace voxrt::bench

int main(int argc, char** argv) {
  try {
    return voxrt::bench::Main(argc, argv);
  } catch (const std::exception& error) {  // of the file system library
    std::fputs(error.what(), stderr);
    return 1;
  }
}
