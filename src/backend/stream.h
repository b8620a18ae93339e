// Stream: an ordered queue of operations, and the closed list of operations itself (a new one needs a decision record).
//
//   stream.SetPlan(PlanId::kDecoder, plan);
//   stream.Run({RunKind::kDecode, 0, rows, heads}, [&](Stream& s) { s.Embed(...); s.AttentionInput(...); ... });
//   Status status = stream.Readback(tokens, host);
//
// Rules. Operations return nothing: misuse is CHECKed, device failures are sticky and come out of Sync/Readback.
// Arguments of operations depend on the RunKey alone; everything that changes from call to call is read from the plans.
// The content of a View that is not read back, tapped or session state is undefined after Run. Results of a row depend
// on its session alone: not on other rows, batch size, chunking or timing (same bits). One thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/batch_plan.h"
#include "backend/device.h"
#include "backend/linear.h"
#include "backend/view.h"
#include "base/function_ref.h"

namespace voxrt::backend {

enum class RunKind : uint8_t {
  kLiveTick,  // encoder and decoder of one tick for every session of the batch
  kEncode,    // encoder and adapter only (long queues)
  kDecode,    // decoder only (prompt, catch-up, speculation)
};

// What a recorded list of operations depends on. Views passed to operations may have been made for the largest key: a
// backend may round row counts up to a bucket and compute rows that nobody reads.
struct RunKey {
  RunKind kind = RunKind::kLiveTick;
  int64_t encoder_rows = 0;
  int64_t decoder_rows = 0;
  int64_t head_rows = 0;
  bool with_logits = false;
  bool operator==(const RunKey&) const = default;
};

// How rotary pairs lie in a head: (2i, 2i+1) as Mistral stores them, or (i, i + D/2) as Hugging Face does.
enum class RopePairing : uint8_t { kAdjacent, kHalf };

enum class Epilogue : uint8_t {
  kNone,   // out = y
  kGelu,   // out = gelu(y), exact erf form
  kAddTo,  // out += y (residual stream)
};

// out[r] = table[token[r]] + audio[audio_row[r]]; audio may be empty. out F32 [rows, dim]. Plan: kDecoder.
struct EmbedArgs {
  const PreparedLinear* table = nullptr;
  View audio;  // [>= 1 + max audio_row, dim] F32
  View out;
};

// out = epilogue(x W^T + bias). x [rows, cols], out [rows, W.rows].
struct LinearArgs {
  View x;
  const PreparedLinear* weight = nullptr;
  View out;
  Epilogue epilogue = Epilogue::kNone;
};

// out = silu(x gate^T) * (x up^T): weight of role kGateUp; out [rows, weight.rows / 2].
struct LinearPairArgs {
  View x;
  const PreparedLinear* weight = nullptr;
  View out;
};

// out = x / sqrt(mean(x^2) + epsilon) * gain (* scales[delay_row[r]] where scales is given; the kDecoder plan's rows).
struct RmsNormArgs {
  View x;       // F32 [rows, dim]
  View gain;    // F32 [1, dim]
  View scales;  // empty, or F32 [delays, dim]
  float epsilon = 1e-5f;
  View out;  // F32 or activation type
};

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
};

// Rotates q and k of qkv [rows, (heads + 2 kv_heads) head_dim] in place by the plan's phases, and makes k and v of
// these rows available to WindowAttention of the same layer and call. Whether they are stored in the ring now or by
// WindowAttention is the backend's business: a call may have more rows than the ring has spare slots, then keys of the
// call are read from qkv.
struct RopeStoreKvArgs {
  PlanId plan = PlanId::kEncoder;
  int layer = 0;
  AttentionShape shape;
  RopePairing pairing = RopePairing::kAdjacent;
  View qkv;
};

// Causal sliding-window attention of every row over its session's cached rows and its own call's rows (itself
// included): indices [max(0, i - window + 1), i]. Scale 1 / sqrt(head_dim). After it the call's K/V are in the ring.
struct WindowAttentionArgs {
  PlanId plan = PlanId::kEncoder;
  int layer = 0;
  AttentionShape shape;
  View qkv;  // as left by RopeStoreKv
  View out;  // [rows, heads * head_dim]
};

// Causal convolution of kernel 3 over frames, one session after another, with GELU. x has rows_per_plan_row rows for
// each row of the kEncoder plan; out has x.rows / stride. The last tail_rows() input frames of each session become its
// new tail.
struct CausalConv1dArgs {
  int index = 0;  // which tail of the session state: 0 or 1
  const PreparedConv* weight = nullptr;
  int rows_per_plan_row = 2;
  View x;
  View out;
};

struct ElementwiseArgs {  // Gelu: out = gelu(x). Add: out += x. Copy: out = x with conversion.
  View x;
  View out;
};

// Index of the largest logit of each row (lowest index on a tie) to out [rows, 1] I32, and to the device token of the
// slot that owns kDecoder row head_rows[r].
struct ArgMaxArgs {
  View logits;  // F32 [head rows, vocab]
  View out;     // I32 [head rows, 1]
};

// Fusions: each is spelled in primitives in compose.h and gives the same result.

// qkv = RopeStoreKv(Linear(RmsNorm(x))).
struct AttentionInputArgs {
  PlanId plan = PlanId::kEncoder;
  int layer = 0;
  AttentionShape shape;
  RopePairing pairing = RopePairing::kAdjacent;
  View x;  // F32 [rows, dim]
  View gain;
  float epsilon = 1e-5f;
  const PreparedLinear* qkv_weight = nullptr;
  View normed;  // scratch [rows, dim]
  View qkv;
};

// x += Linear(WindowAttention(qkv)).
struct AttentionOutputArgs {
  PlanId plan = PlanId::kEncoder;
  int layer = 0;
  AttentionShape shape;
  View qkv;
  View attended;  // scratch [rows, heads * head_dim]
  const PreparedLinear* output_weight = nullptr;
  View x;
};

// hidden = LinearPair(RmsNorm(x, scales)).
struct FeedForwardInputArgs {
  View x;
  View gain;
  View scales;  // empty for the encoder
  float epsilon = 1e-5f;
  const PreparedLinear* gate_up = nullptr;
  View normed;  // scratch
  View hidden;
};

// For i in head_rows: token[i] = ArgMax(Linear(RmsNorm(x[head_rows[i]]))); logits are stored only where the view is
// given.
struct HeadArgs {
  View x;  // F32 [decoder rows, dim]
  View gain;
  float epsilon = 1e-5f;
  const PreparedLinear* weight = nullptr;
  View normed;  // scratch [head rows, dim]
  View logits;  // empty, or F32 [head rows, vocab]
  View token;   // I32 [head rows, 1]
};

// Receives named intermediate results on the host: for tests and parity tools. Names: "mel", "conv", "encoder",
// "adapter", "decoder" (before the final norm), "logits"; "encoder.N" / "decoder.N" after layer N.
class TapSink {
 public:
  virtual ~TapSink() = default;
  virtual bool Wants(std::string_view name) const = 0;
  virtual void Take(std::string_view name, int64_t rows, int64_t cols, const float* values) = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Copies the plan; used by the operations of the following Run.
  virtual void SetPlan(PlanId id, const BatchPlan& plan) = 0;
  // `emit` only emits operations, and the same ones for the same key.
  virtual void Run(const RunKey& key, base::FunctionRef<void(Stream&)> emit) = 0;

  // Host rows (dense, of the view's dtype) to device, ordered with operations; `source` may be reused after the call.
  virtual void Upload(const View& destination, const void* source) = 0;
  // Waits for everything before it and copies the view (dense) to the host; reports sticky failures.
  virtual Status Readback(const View& source, void* destination) = 0;
  virtual Status Sync() = 0;
  // Copies all state of slot `from` (whose rows have index < encoder_end / decoder_end) to slot `to`.
  virtual void CloneState(int from, int to, int64_t encoder_end, int64_t decoder_end) = 0;

  // nullptr = no taps. Tap costs one null check when there are none.
  virtual void SetTapSink(TapSink* sink) = 0;
  virtual void Tap(std::string_view name, const View& view) = 0;

  // Primitives.
  virtual void Embed(const EmbedArgs& args) = 0;
  virtual void Linear(const LinearArgs& args) = 0;
  virtual void LinearPair(const LinearPairArgs& args) = 0;
  virtual void RmsNorm(const RmsNormArgs& args) = 0;
  virtual void RopeStoreKv(const RopeStoreKvArgs& args) = 0;
  virtual void WindowAttention(const WindowAttentionArgs& args) = 0;
  virtual void CausalConv1d(const CausalConv1dArgs& args) = 0;
  virtual void Gelu(const ElementwiseArgs& args) = 0;
  virtual void Add(const ElementwiseArgs& args) = 0;
  virtual void Copy(const ElementwiseArgs& args) = 0;
  virtual void ArgMax(const ArgMaxArgs& args) = 0;

  // Fusions.
  virtual void AttentionInput(const AttentionInputArgs& args) = 0;
  virtual void AttentionOutput(const AttentionOutputArgs& args) = 0;
  virtual void FeedForwardInput(const FeedForwardInputArgs& args) = 0;
  virtual void Head(const HeadArgs& args) = 0;
};

}  // namespace voxrt::backend
