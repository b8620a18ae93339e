// Admission: how many sessions the server takes on. A place is a lease that gives itself back however the connection
// ends.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

namespace voxrt::server {

class Admission : public std::enable_shared_from_this<Admission> {
 public:
  explicit Admission(int places) : places_(places) {}

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

  // nullopt when all places are taken.
  std::optional<Lease> TryEnter() {
    int taken = taken_.load();
    do {
      if (taken >= places_) return std::nullopt;
    } while (!taken_.compare_exchange_weak(taken, taken + 1));
    return Lease(shared_from_this());
  }
  int taken() const { return taken_; }
  int places() const { return places_; }

 private:
  const int places_;
  std::atomic<int> taken_{0};
};

}  // namespace voxrt::server
