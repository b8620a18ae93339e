// Each fusion spelled in primitives: the definition of the fusion, and what a new backend begins with.
#pragma once

#include "backend/stream.h"

namespace voxrt::backend {

inline void ComposeAttentionInput(Stream& s, const AttentionInputArgs& a) {
  s.RmsNorm({.x = a.x, .gain = a.gain, .scales = {}, .epsilon = a.epsilon, .out = a.normed});
  s.Linear({.x = a.normed, .weight = a.qkv_weight, .out = a.qkv});
  s.RopeStoreKv({.plan = a.plan, .layer = a.layer, .shape = a.shape, .pairing = a.pairing, .qkv = a.qkv});
}

inline void ComposeAttentionOutput(Stream& s, const AttentionOutputArgs& a) {
  s.WindowAttention({.plan = a.plan, .layer = a.layer, .shape = a.shape, .qkv = a.qkv, .out = a.attended});
  s.Linear({.x = a.attended, .weight = a.output_weight, .out = a.x, .epilogue = Epilogue::kAddTo});
}

inline void ComposeFeedForwardInput(Stream& s, const FeedForwardInputArgs& a) {
  s.RmsNorm({.x = a.x, .gain = a.gain, .scales = a.scales, .epsilon = a.epsilon, .out = a.normed});
  s.LinearPair({.x = a.normed, .weight = a.gate_up, .out = a.hidden});
}

// Head is composed where the plan is known: gather head_rows, RmsNorm, Linear to logits, ArgMax.

}  // namespace voxrt::backend
