// FakeEngine: the real sessions and scheduler on a network of hashes (engine/fake_step_runner.h), for server tests
// without a model. Text is a function of every sample fed, so a byte lost, doubled or moved changes it. Can be stalled
// and broken.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace voxrt::server::testing {

class FakeEngine : public engine::Engine {
 public:
  static std::shared_ptr<FakeEngine> Create(int max_sessions);

  // While stalled, device calls do not return.
  virtual void Stall(bool stalled) = 0;
  // Every call fails from now on: the device is lost.
  virtual void LoseDevice() = 0;
  // The next session that is given work fails alone.
  virtual void FailNextSession() = 0;
  // The text of 16 kHz samples run alone, as one utterance.
  virtual std::string Transcribe(const std::vector<float>& samples, int delay_ms) = 0;
};

}  // namespace voxrt::server::testing
