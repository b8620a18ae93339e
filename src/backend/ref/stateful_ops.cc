// Operations of the ref backend that read or write session state: embedding of the device token, rotary K/V, attention
// over the rings, causal convolutions, arg-max, cloning.
//
// Attention goes row by row: a row's K and V enter the ring, then the row attends. A ring of window rows would be
// enough for that, whatever the number of rows in the call, so bulk calls are exact without a second place to read keys
// from; and every row sees K and V as stored, its own included.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/ref/conv.h"
#include "backend/ref/linear.h"
#include "backend/ref/scalar.h"
#include "backend/ref/stream.h"
#include "base/check.h"

namespace voxrt::backend {
namespace {

// Rotates one head in place: pairs (2i, 2i + 1) or (i, i + D/2) by the row's phases.
void RotateHead(const View& qkv, int64_t row, int64_t first_col, int head_dim, RopePairing pairing,
                const float* cosines, const float* sines) {
  for (int i = 0; i < head_dim / 2; ++i) {
    const int64_t a = first_col + (pairing == RopePairing::kAdjacent ? 2 * i : i);
    const int64_t b = pairing == RopePairing::kAdjacent ? a + 1 : a + head_dim / 2;
    const double x = Load(qkv, row, a);
    const double y = Load(qkv, row, b);
    const double c = cosines[i];
    const double s = sines[i];
    Store(qkv, row, a, x * c - y * s);
    Store(qkv, row, b, x * s + y * c);
  }
}

}  // namespace

KvRing& RefStream::ring(PlanId id, int slot) {
  RefSession& session = state_->session(slot);
  return id == PlanId::kEncoder ? session.encoder : session.decoder;
}

void RefStream::Embed(const EmbedArgs& args) {
  checker_.Check(args);
  const auto* table = dynamic_cast<const RefLinear*>(args.table);
  VOXRT_CHECK(table != nullptr);
  const BatchPlan& decoder = plan(PlanId::kDecoder);
  for (const PlanGroup& group : decoder.groups) {
    for (int32_t r = group.row_begin; r < group.row_begin + group.row_count; ++r) {
      const auto at = static_cast<size_t>(r);
      int32_t token = decoder.token[at];
      if (token == BatchPlan::kDeviceToken) token = state_->session(group.slot).last_token;
      VOXRT_CHECK(token >= 0 && token < table->rows());  // a device token exists only after an arg-max of the slot
      const std::vector<float> row = table->Row(token);
      for (int64_t i = 0; i < args.out.cols; ++i) {
        double value = static_cast<double>(row[static_cast<size_t>(i)]);
        if (!args.audio.empty()) value += static_cast<double>(Load(args.audio, decoder.audio_row[at], i));
        Store(args.out, r, i, value);
      }
    }
  }
}

void RefStream::RopeStoreKv(const RopeStoreKvArgs& args) {
  checker_.Check(args);
  const BatchPlan& batch = plan(args.plan);
  const int64_t half = args.shape.head_dim / 2;
  for (int64_t r = 0; r < batch.rows; ++r) {
    for (int head = 0; head < args.shape.heads + args.shape.kv_heads; ++head) {  // q and k heads; v follows
      RotateHead(args.qkv, r, int64_t{head} * args.shape.head_dim, args.shape.head_dim, args.pairing,
                 batch.rope_cos.data() + r * half, batch.rope_sin.data() + r * half);
    }
  }
}

void RefStream::WindowAttention(const WindowAttentionArgs& args) {
  checker_.Check(args);
  const int64_t k_col = int64_t{args.shape.heads} * args.shape.head_dim;
  const int64_t v_col = k_col + int64_t{args.shape.kv_heads} * args.shape.head_dim;
  for (const PlanGroup& group : plan(args.plan).groups) {
    for (int64_t r = group.row_begin; r < group.row_begin + group.row_count; ++r) {
      const std::vector<float> qkv = LoadRow(args.qkv, r);
      const int64_t index = group.first_index + r - group.row_begin;
      ring(args.plan, group.slot).Write(args.layer, /*is_v=*/false, index, qkv.data() + k_col);
      ring(args.plan, group.slot).Write(args.layer, /*is_v=*/true, index, qkv.data() + v_col);
      Attend(args, group, r);
    }
  }
}

// One row over indices [max(0, i - window + 1), i] of its session, all of them in the ring by now.
void RefStream::Attend(const WindowAttentionArgs& args, const PlanGroup& group, int64_t row) {
  const KvRing& cache = ring(args.plan, group.slot);
  const int64_t window = args.plan == PlanId::kEncoder ? state_->spec().encoder.window : state_->spec().decoder.window;
  const int64_t last = group.first_index + row - group.row_begin;
  const int64_t first = std::max<int64_t>(0, last - window + 1);
  const int dim = args.shape.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  std::vector<float> key_or_value(static_cast<size_t>(dim));
  for (int head = 0; head < args.shape.heads; ++head) {
    const int kv_head = head / (args.shape.heads / args.shape.kv_heads);
    std::vector<double> weights;
    for (int64_t j = first; j <= last; ++j) {
      cache.Read(args.layer, /*is_v=*/false, j, kv_head, key_or_value.data());
      double score = 0.0;
      for (int d = 0; d < dim; ++d) {
        score += static_cast<double>(Load(args.qkv, row, int64_t{head} * dim + d)) *
                 static_cast<double>(key_or_value[static_cast<size_t>(d)]);
      }
      weights.push_back(score * scale);
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    double total = 0.0;
    for (double& weight : weights) {
      weight = std::exp(weight - largest);
      total += weight;
    }
    std::vector<double> sum(static_cast<size_t>(dim), 0.0);
    for (int64_t j = first; j <= last; ++j) {
      cache.Read(args.layer, /*is_v=*/true, j, kv_head, key_or_value.data());
      for (size_t d = 0; d < sum.size(); ++d) {
        sum[d] += weights[static_cast<size_t>(j - first)] * static_cast<double>(key_or_value[d]);
      }
    }
    for (int d = 0; d < dim; ++d) Store(args.out, row, int64_t{head} * dim + d, sum[static_cast<size_t>(d)] / total);
  }
}

void RefStream::CausalConv1d(const CausalConv1dArgs& args) {
  checker_.Check(args);
  const auto* conv = dynamic_cast<const RefConv*>(args.weight);
  VOXRT_CHECK(conv != nullptr);
  const int64_t channels = conv->in_channels();
  const int64_t tail_rows = conv->tail_rows();
  for (const PlanGroup& group : plan(PlanId::kEncoder).groups) {
    std::vector<float>& tail = state_->session(group.slot).conv_tail[args.index];
    // frames = tail ++ new input, [tail_rows + count, channels]; output o reads frames o * stride .. o * stride + 2.
    std::vector<float> frames = tail;
    const int64_t begin = int64_t{group.row_begin} * args.rows_per_plan_row;
    const int64_t count = int64_t{group.row_count} * args.rows_per_plan_row;
    for (int64_t r = begin; r < begin + count; ++r) {
      const std::vector<float> row = LoadRow(args.x, r);
      frames.insert(frames.end(), row.begin(), row.end());
    }
    for (int64_t o = 0; o < count / conv->stride(); ++o) {
      for (int64_t n = 0; n < conv->out_channels(); ++n) {
        double sum = static_cast<double>(conv->bias(n));
        for (int64_t tap = 0; tap < 3; ++tap) {
          for (int64_t c = 0; c < channels; ++c) {
            sum += static_cast<double>(conv->weight(n, c, tap)) *
                   static_cast<double>(frames[static_cast<size_t>((o * conv->stride() + tap) * channels + c)]);
          }
        }
        Store(args.out, begin / conv->stride() + o, n, voxrt::backend::Gelu(sum));
      }
    }
    tail.assign(frames.end() - tail_rows * channels, frames.end());
  }
}

int32_t RefStream::SlotOfDecoderRow(int32_t row) const {
  for (const PlanGroup& group : plan(PlanId::kDecoder).groups) {
    if (row >= group.row_begin && row < group.row_begin + group.row_count) return group.slot;
  }
  VOXRT_CHECK(false && "row belongs to no group");
  return -1;
}

void RefStream::ArgMax(const ArgMaxArgs& args) {
  checker_.Check(args);
  const std::vector<int32_t>& head_rows = plan(PlanId::kDecoder).head_rows;
  for (size_t i = 0; i < head_rows.size(); ++i) {
    int32_t best = 0;
    float best_logit = -std::numeric_limits<float>::infinity();
    for (int64_t v = 0; v < args.logits.cols; ++v) {
      const float logit = Load(args.logits, static_cast<int64_t>(i), v);
      if (logit > best_logit) {
        best = static_cast<int32_t>(v);
        best_logit = logit;
      }
    }
    *reinterpret_cast<int32_t*>(args.out.row_bytes(static_cast<int64_t>(i))) = best;
    state_->session(SlotOfDecoderRow(head_rows[i])).last_token = best;
  }
}

void RefStream::CloneState(int from, int to, int64_t encoder_end, int64_t decoder_end) {
  checker_.CheckClone(from, to, encoder_end, decoder_end);
  const RefSession& source = state_->session(from);
  RefSession& target = state_->session(to);
  target.encoder.CopyFrom(source.encoder, encoder_end);
  target.decoder.CopyFrom(source.decoder, decoder_end);
  for (int i = 0; i < 2; ++i) target.conv_tail[i] = source.conv_tail[i];
  target.last_token = source.last_token;
}

}  // namespace voxrt::backend
