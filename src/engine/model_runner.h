// ModelRunner: StepRunner over model::Forward and a backend stream: builds the batch plans (rows, phases, tokens) of a
// call.
#pragma once

#include <memory>

#include "backend/device.h"
#include "backend/stream.h"
#include "engine/step_runner.h"
#include "model/forward.h"
#include "model/model.h"

namespace voxrt::engine {

class ModelRunner : public StepRunner {
 public:
  struct Options {
    int max_sessions = 1;  // slots
    int64_t max_encode_ticks = 128;
    int64_t max_item_rows = 4;  // decoder rows of one session in one call
    quant::DType kv_dtype = quant::DType::kF32;
  };
  static Result<std::unique_ptr<ModelRunner>> Create(std::shared_ptr<const weights::Checkpoint> checkpoint,
                                                     std::shared_ptr<model::Model> model, backend::Device& device,
                                                     const Options& options);

  StepShape shape() const;
  backend::Stream& stream() { return *stream_; }
  const backend::SessionState& state() const { return *state_; }

  // One live tick of every batch of up to so many sessions, of silence, on slots that are clear again afterwards. What
  // a backend does at the first use of a batch size (load kernels, record graphs) is then behind it.
  Status WarmUp(int sessions);

  Status Encode(std::span<const EncodeItem> items) override;
  Status Decode(std::span<const DecodeItem> items, bool with_logits, DecodeOutput* output) override;
  Status LiveTick(std::span<const EncodeItem> encode, std::span<const DecodeItem> decode, bool with_logits,
                  DecodeOutput* output) override;
  Status Reserve(int slot, int64_t ticks_end, int64_t positions_end) override;
  void Clear(int slot) override;
  void Release(int slot) override;
  Status Clone(int from, int to, int64_t ticks) override;
  int64_t BytesNow(int slot) const override;
  Status Health() const override;

 private:
  ModelRunner() = default;
  // Fill and send the plans; return the number of ticks / the number of head rows.
  int64_t PlanEncoder(std::span<const EncodeItem> items);
  int64_t PlanDecoder(std::span<const DecodeItem> items);
  void UploadMel(std::span<const EncodeItem> items, int64_t ticks);
  Status Collect(int64_t head_rows, bool with_logits, DecodeOutput* output);

  std::shared_ptr<const weights::Checkpoint> checkpoint_;
  std::shared_ptr<model::Model> model_;
  Options options_;
  int64_t max_decode_rows_ = 0;
  std::unique_ptr<backend::SessionState> state_;
  std::unique_ptr<model::Forward> forward_;
  std::unique_ptr<backend::Stream> stream_;
  backend::BatchPlan encoder_plan_;  // kept to reuse their memory
  backend::BatchPlan decoder_plan_;
  std::vector<float> mel_;
};

}  // namespace voxrt::engine
