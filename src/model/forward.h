// Forward: the layers of docs/model.md as operations on a stream, with the scratch they need. Reads like the
// specification.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/stream.h"
#include "model/model.h"

namespace voxrt::model {

class Forward {
 public:
  static Result<std::unique_ptr<Forward>> Create(const Model& model, backend::Device& device, const Limits& limits);

  // Where the mel rows of a call go: F32 [8 ticks, bins]; sessions one after another as in the encoder plan.
  backend::View MelInput(int64_t ticks) const { return mel_->view().Rows(0, ticks * mel_per_tick_); }
  // Where adapter rows of a call are: F32 [ticks, decoder dim]. Long queues have their own buffer, so that live ticks
  // may run in between.
  backend::View AudioRows(bool bulk) const { return (bulk ? bulk_audio_ : live_audio_)->view(); }
  // I32 [head rows, 1] and F32 [head rows, vocab].
  backend::View Tokens(int64_t head_rows) const { return tokens_->view().Rows(0, head_rows); }
  backend::View Logits(int64_t head_rows) const { return logits_->view().Rows(0, head_rows); }
  // Logit rows are allocated on first use: only sampling and tests need them. Not inside Run.
  Status EnsureLogits();

  // conv stem, encoder, adapter of `ticks` ticks (encoder plan: 4 rows each) into AudioRows(bulk).
  void Encode(backend::Stream& s, int64_t ticks, bool bulk);
  // decoder and head of `rows` rows (decoder plan), tokens into Tokens(head_rows).
  void Decode(backend::Stream& s, int64_t rows, int64_t head_rows, bool bulk, bool with_logits);

 private:
  struct StackScratch {                         // shared by all layers of a stack
    std::unique_ptr<backend::Buffer> x;         // F32 [rows, dim], the residual stream
    std::unique_ptr<backend::Buffer> normed;    // [rows, dim]
    std::unique_ptr<backend::Buffer> qkv;       // [rows, (heads + 2 kv_heads) head_dim]
    std::unique_ptr<backend::Buffer> attended;  // [rows, heads head_dim]
    std::unique_ptr<backend::Buffer> hidden;    // [rows, hidden_dim]
  };

  Forward(const Model& model, const Limits& limits);
  Status Allocate(backend::Device& device);
  Status AllocateStack(backend::Device& device, const weights::StackConfig& stack, int64_t rows, StackScratch* scratch);
  void Layer(backend::Stream& s, backend::PlanId plan, int index, int64_t rows);

  const Model& model_;
  Limits limits_;
  int64_t mel_per_tick_;
  int64_t encoder_per_tick_;
  backend::Device* device_ = nullptr;
  std::unique_ptr<backend::Buffer> mel_;
  std::unique_ptr<backend::Buffer> conv_;  // [8 ticks, encoder dim]
  StackScratch encoder_;
  std::unique_ptr<backend::Buffer> projected_;   // [ticks, decoder dim]
  std::unique_ptr<backend::Buffer> live_audio_;  // F32 [sessions, decoder dim]
  std::unique_ptr<backend::Buffer> bulk_audio_;  // F32 [ticks, decoder dim]
  StackScratch decoder_;
  std::unique_ptr<backend::Buffer> tokens_;
  std::unique_ptr<backend::Buffer> logits_;
};

}  // namespace voxrt::model
