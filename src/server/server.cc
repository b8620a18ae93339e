#include "server/server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <thread>

#include "base/log.h"
#include "server/net/listener.h"
#include "server/state.h"

namespace voxrt::server {
namespace {

constexpr auto kRollPeriod = std::chrono::seconds(1);
constexpr auto kDrainPoll = std::chrono::milliseconds(50);
constexpr double kFinishSeconds = 5.0;  // after the limit, for the final texts of what is ended then
constexpr double kAbortSeconds = 2.0;   // after that, for errors and close frames

class ServerImpl : public Server {
 public:
  ServerImpl(ServerOptions options, std::shared_ptr<engine::Engine> engine)
      : context_(options.io_threads),
        state_(std::make_shared<ServerState>(std::move(options), std::move(engine))),
        jobs_(std::make_shared<JobPool>(state_->options.upload_threads)),
        roll_timer_(context_),
        drain_timer_(context_),
        signals_(context_) {}
  ~ServerImpl() override { jobs_.reset(); }

  Status Open();
  int port() const override { return plain_ == nullptr ? -1 : plain_->port(); }
  int tls_port() const override { return tls_ == nullptr ? -1 : tls_->port(); }
  void Run(bool handle_signals) override;
  void Drain() override {
    asio::post(context_, [this] { BeginDrain(); });
  }
  void Stop() override { context_.stop(); }
  bool engine_lost() const override { return engine_lost_; }

 private:
  void Roll();
  void BeginDrain();
  void WatchDrain();
  void EndDrain(bool complete);
  void WaitForSignal();

  asio::io_context context_;
  const std::shared_ptr<ServerState> state_;
  std::shared_ptr<JobPool> jobs_;
  std::shared_ptr<TlsCertificates> certificates_;
  std::shared_ptr<Listener> plain_, tls_;
  asio::steady_timer roll_timer_, drain_timer_;
  asio::signal_set signals_;
  Clock::time_point drain_began_;
  enum class DrainStage : uint8_t { kFinishing, kEnded, kAborted } drain_stage_ = DrainStage::kFinishing;
  std::atomic<bool> engine_lost_{false};
};

Status CheckPorts(const ServerOptions& options) {
  if (options.port < 0 && options.tls_port < 0)
    return {StatusCode::kInvalidArgument, "both ports are closed; give --port or --tls-port"};
  if (options.tls_port < 0 && (!options.tls_cert.empty() || !options.tls_key.empty()))
    return {StatusCode::kInvalidArgument,
            "--tls-cert and --tls-key are given without --tls-port; say which port is TLS"};
  if (options.tls_port >= 0 && (options.tls_cert.empty() || options.tls_key.empty()))
    return {StatusCode::kInvalidArgument, "--tls-port needs --tls-cert and --tls-key"};
  return {};
}

Status ServerImpl::Open() {
  const ServerOptions& options = state_->options;
  VOXRT_RETURN_IF_ERROR(CheckPorts(options));
  const auto addresses = std::make_shared<AddressCounter>();
  if (options.port >= 0) {
    plain_ = std::make_shared<Listener>(context_, state_, jobs_, nullptr, addresses);
    VOXRT_RETURN_IF_ERROR(plain_->Open(options.host, options.port));
  }
  if (options.tls_port >= 0) {
    certificates_ = std::make_shared<TlsCertificates>(options.tls_cert, options.tls_key);
    VOXRT_RETURN_IF_ERROR(certificates_->Load());
    tls_ = std::make_shared<Listener>(context_, state_, jobs_, certificates_, addresses);
    VOXRT_RETURN_IF_ERROR(tls_->Open(options.host, options.tls_port));
  }
  return {};
}

void ServerImpl::Run(bool handle_signals) {
  if (handle_signals) {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) signals_.add(signal);
    WaitForSignal();
  }
  Roll();
  if (plain_ != nullptr) plain_->Run();
  if (tls_ != nullptr) tls_->Run();
  const auto work = [this] {
    for (;;) {
      try {
        context_.run();
        return;
      } catch (
          const std::exception& error) {  // allocation failure in a handler: that connection is lost, the others go on
        Log(LogLevel::kError, "server.exception what=\"{}\"", error.what());
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < state_->options.io_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  jobs_.reset();
}

// Once a second: what sessions reported becomes visible; a lost engine ends the server.
void ServerImpl::Roll() {
  state_->RollReports();
  if (!engine_lost_ && !state_->engine->health().ok()) {
    engine_lost_ = true;
    Log(LogLevel::kError, "server.engine_lost error=\"{}\"", state_->engine->health().message());
    BeginDrain();
  }
  roll_timer_.expires_after(kRollPeriod);
  roll_timer_.async_wait([this](ErrorCode error) {
    if (!error) Roll();
  });
}

void ServerImpl::WaitForSignal() {
  signals_.async_wait([this](ErrorCode error, int signal) {
    if (error) return;
    if (signal == SIGHUP) {
      const Status status = certificates_ == nullptr ? Status() : certificates_->Load();
      Log(status.ok() ? LogLevel::kInfo : LogLevel::kError, "server.reload error=\"{}\"", status.message());
    } else if (state_->draining) {
      return EndDrain(false);
    } else {
      BeginDrain();
    }
    WaitForSignal();
  });
}

// The ports stay open meanwhile: whoever asks is told to go elsewhere.
void ServerImpl::BeginDrain() {
  if (state_->draining.exchange(true)) return;
  Log(LogLevel::kInfo, "server.drain sessions={} limit_s={}", state_->registered(), state_->options.drain_timeout_s);
  drain_began_ = Clock::now();
  state_->ForEach([](Drainable& connection) { connection.Drain(); });
  WatchDrain();
}

// At the limit what runs is ended as if its clients had ended it; what does not get its final text then either gets an
// error.
void ServerImpl::WatchDrain() {
  const double over_s =
      std::chrono::duration<double>(Clock::now() - drain_began_).count() - state_->options.drain_timeout_s;
  const bool nothing_runs = state_->admission->taken() == 0;
  if ((nothing_runs && state_->registered() == 0) || over_s > kFinishSeconds + kAbortSeconds)
    return EndDrain(nothing_runs && state_->cut == 0);
  if (over_s > 0.0 && drain_stage_ == DrainStage::kFinishing) {
    drain_stage_ = DrainStage::kEnded;
    state_->ForEach([](Drainable& connection) { connection.EndNow(); });
  } else if (over_s > kFinishSeconds && drain_stage_ == DrainStage::kEnded) {
    drain_stage_ = DrainStage::kAborted;
    state_->ForEach([](Drainable& connection) { connection.Abort(); });
  }
  drain_timer_.expires_after(kDrainPoll);
  drain_timer_.async_wait([this](ErrorCode error) {
    if (!error) WatchDrain();
  });
}

void ServerImpl::EndDrain(bool complete) {
  Log(LogLevel::kInfo, "server.drained complete={} cut={} seconds={:.2f}", complete,
      std::max<int>(state_->cut, complete ? 0 : state_->admission->taken()),
      std::chrono::duration<double>(Clock::now() - drain_began_).count());
  Stop();
}

}  // namespace

Status Server::CheckAddresses(const ServerOptions& options) {
  VOXRT_RETURN_IF_ERROR(CheckPorts(options));
  if (options.tls_port >= 0) VOXRT_RETURN_IF_ERROR(TlsCertificates(options.tls_cert, options.tls_key).Load());
  asio::io_context context;
  tcp::acceptor plain(context), tls(context);
  if (options.port >= 0) VOXRT_RETURN_IF_ERROR(OpenAcceptor(&plain, options.host, options.port));
  if (options.tls_port >= 0) VOXRT_RETURN_IF_ERROR(OpenAcceptor(&tls, options.host, options.tls_port));
  return {};
}

Result<std::unique_ptr<Server>> Server::Create(ServerOptions options, std::shared_ptr<engine::Engine> engine) {
  if (options.model_names.empty())
    return Status(StatusCode::kInvalidArgument, "no model name is served; give --served-model-name");
  auto server = std::make_unique<ServerImpl>(std::move(options), std::move(engine));
  VOXRT_RETURN_IF_ERROR(server->Open());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace voxrt::server
