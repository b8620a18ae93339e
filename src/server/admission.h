// Admission: how many sessions the server takes on. A place is a lease that gives itself back however the connection
// ends. The number of places is an estimate where it was measured: when the engine falls behind its sessions, nobody
// new comes in until it has caught up, then a few a second.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

namespace voxrt::server {

class Admission : public std::enable_shared_from_this<Admission> {
 public:
  // `by_load`: Observe may lower the limit.
  explicit Admission(int places, bool by_load = false) : places_(places), by_load_(by_load), limit_(places) {}

  class Lease {
   public:
    explicit Lease(std::shared_ptr<Admission> owner) : owner_(std::move(owner)) {}
    ~Lease() {
      if (owner_ != nullptr) --owner_->taken_;
    }
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&& other) noexcept {
      std::swap(owner_, other.owner_);
      return *this;
    }

   private:
    std::shared_ptr<Admission> owner_;
  };

  // nullopt when all places are taken, or as many as the engine can serve now.
  std::optional<Lease> TryEnter() {
    int taken = taken_.load();
    do {
      if (taken >= limit_) return std::nullopt;
    } while (!taken_.compare_exchange_weak(taken, taken + 1));
    return Lease(shared_from_this());
  }

  // To be told once a second how late the latest of the sessions is that send at real-time pace. Sessions report once a
  // second too, so one look may miss them: two looks are taken together. True when limited() changed.
  bool Observe(double lag_s) {
    const double worst_s = std::max(lag_s, last_lag_s_);
    last_lag_s_ = lag_s;
    behind_looks_ = worst_s > kBehindSeconds ? behind_looks_ + 1 : 0;
    const bool was_limited = limited();
    if (by_load_ && behind_looks_ >= kBehindLooks) {
      limit_ = std::min<int>(limit_, std::max<int>(taken_, 1));
    } else if (worst_s < kCaughtUpSeconds && limit_ < places_) {
      limit_ = std::min(places_, std::max<int>(limit_, taken_) + std::max(1, places_ / kStepsBack));
    }
    return limited() != was_limited;
  }

  int taken() const { return taken_; }
  int places() const { return places_; }
  // Places that are given out at the moment; fewer than places() after the engine was behind.
  int limit() const { return limit_; }
  bool full() const { return taken_ >= limit_; }
  bool limited() const { return limit_ < places_; }

 private:
  static constexpr double kBehindSeconds = 0.5;
  static constexpr double kCaughtUpSeconds = 0.25;
  static constexpr int kBehindLooks = 3;
  static constexpr int kStepsBack = 16;  // looks until all places are given out again, at most

  const int places_;
  const bool by_load_;
  std::atomic<int> limit_;
  std::atomic<int> taken_{0};
  double last_lag_s_ = 0.0;  // of the one who observes
  int behind_looks_ = 0;
};

}  // namespace voxrt::server
