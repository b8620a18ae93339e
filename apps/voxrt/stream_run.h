// StreamRun: one audio source through one session into sinks, live: text goes out as it is known, also while the source
// pauses.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "audio/source.h"
#include "base/status.h"
#include "cli.h"
#include "engine/engine.h"
#include "screen.h"
#include "sink.h"

namespace voxrt::app {

struct StreamRunOptions {
  engine::SessionOptions session;
  std::string name;  // of the input, for messages
  std::atomic<bool>* stop =
      nullptr;  // raised to make the source's blocking read return (DescriptorReader's cancel flag)
  // Called with every block of samples before it is fed (level meter); may be empty.
  std::function<void(std::span<const float> samples)> on_samples;
  // Samples that were lost before they could be read, counted by the source, at `dropped_rate`; null where nothing can
  // be lost.
  const std::atomic<uint64_t>* dropped_samples = nullptr;
  int dropped_rate = 16000;
  // The status line; empty: position, speed and time left.
  std::function<std::string(int64_t position_ms)> status_line;
};

struct StreamRunResult {
  Status status;
  ExitCode exit_code = kOk;  // what `status` means when this is the only input
  bool output_failed = false;
  Summary summary;
};

// Runs to the end of the source, to an error, or to the first interrupt (then what was heard is still finished and
// written).
StreamRunResult RunStream(engine::Engine& engine, audio::AudioSource& source, const std::vector<Sink*>& sinks,
                          Screen& screen, const StreamRunOptions& options);

}  // namespace voxrt::app
