// The scenarios of voxrt bench: live ticks, offline transcription, and the stages that can be timed alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/status.h"
#include "engine/engine.h"
#include "weights/checkpoint.h"

namespace voxrt::app {

// Bytes of weights that a stage reads: each stored matrix once.
struct StageBytes {
  int64_t encoder = 0;  // convolutions and adapter included
  int64_t decoder = 0;  // layers, without head
  int64_t head = 0;     // output head, which is the token table where they are tied
};
StageBytes CountStageBytes(const weights::Checkpoint& checkpoint);

// One tick fed at a time, the next when its token has come: what a live stream costs.
struct LiveResult {
  int64_t ticks = 0;
  double p50_ms = 0, p90_ms = 0, p99_ms = 0, max_ms = 0;
  double seconds = 0;  // of all measured ticks
  double x_realtime = 0;
};
Result<LiveResult> RunLive(engine::Engine& engine, std::span<const float> samples, int64_t warmup_ticks);

// Everything fed as fast as it is taken.
struct OfflineResult {
  int64_t ticks = 0;
  double seconds = 0;
  double x_realtime = 0;
  double encode_ms_per_tick = 0;
  double decode_ms_per_tick = 0;  // head included
  double decode_ms_per_pass = 0;
  double tokens_per_pass = 0;
  int64_t decode_passes = 0;
};
Result<OfflineResult> RunOffline(engine::Engine& engine, std::span<const float> samples);

// Milliseconds of log-mel per tick, on one thread.
double MeasureMel(const weights::AudioConfig& config, std::span<const float> samples);

// Milliseconds of the output head (norm, product, arg-max) for one row.
Result<double> MeasureHead(const weights::Checkpoint& checkpoint, backend::Device& device);

}  // namespace voxrt::app
