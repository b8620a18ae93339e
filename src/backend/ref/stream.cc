// Control and elementwise operations of the ref backend, products and fusions. Operations over session state are in
// stateful_ops.cc.
#include "backend/ref/stream.h"

#include <cmath>
#include <cstring>

#include "backend/compose.h"
#include "backend/ref/linear.h"
#include "backend/ref/scalar.h"
#include "base/check.h"

namespace voxrt::backend {
namespace {

using quant::DType;

constexpr DType kActivationDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

const RefLinear& AsRef(const PreparedLinear* weight) {
  const auto* ref = dynamic_cast<const RefLinear*>(weight);
  VOXRT_CHECK(ref != nullptr);  // else it was prepared by another device
  return *ref;
}

size_t RowBytes(const View& view) { return static_cast<size_t>(view.cols) * quant::DTypeBytes(view.dtype); }

}  // namespace

RefStream::RefStream(const StreamSpec& spec, RefSessionState* state)
    : state_(state), checker_(spec, state->spec(), kActivationDTypes) {}

void RefStream::SetPlan(PlanId id, const BatchPlan& plan) {
  checker_.SetPlan(id, plan);
  plans_[static_cast<size_t>(id)] = plan;
}

void RefStream::Run(const RunKey& key, base::FunctionRef<void(Stream&)> emit) {
  checker_.Check(key);
  emit(*this);
}

void RefStream::Upload(const View& destination, const void* source) {
  for (int64_t r = 0; r < destination.rows; ++r) {
    std::memcpy(destination.row_bytes(r),
                static_cast<const std::byte*>(source) + static_cast<size_t>(r) * RowBytes(destination),
                RowBytes(destination));
  }
}

Status RefStream::Readback(const View& source, void* destination) {
  for (int64_t r = 0; r < source.rows; ++r) {
    std::memcpy(static_cast<std::byte*>(destination) + static_cast<size_t>(r) * RowBytes(source), source.row_bytes(r),
                RowBytes(source));
  }
  return Status();
}

void RefStream::Tap(std::string_view name, const View& view) {
  if (tap_sink_ == nullptr || !tap_sink_->Wants(name)) return;
  std::vector<float> values;
  for (int64_t r = 0; r < view.rows; ++r) {
    const std::vector<float> row = LoadRow(view, r);
    values.insert(values.end(), row.begin(), row.end());
  }
  tap_sink_->Take(name, view.rows, view.cols, values.data());
}

void RefStream::Linear(const LinearArgs& args) {
  checker_.Check(args);
  const std::vector<double> y = AsRef(args.weight).Multiply(args.x);
  for (int64_t r = 0; r < args.out.rows; ++r) {
    for (int64_t n = 0; n < args.out.cols; ++n) {
      const double value = y[static_cast<size_t>(r * args.out.cols + n)];
      switch (args.epilogue) {
        case Epilogue::kNone:
          Store(args.out, r, n, value);
          break;
        case Epilogue::kGelu:
          Store(args.out, r, n, voxrt::backend::Gelu(value));
          break;
        case Epilogue::kAddTo:
          Store(args.out, r, n, static_cast<double>(Load(args.out, r, n)) + value);
          break;
      }
    }
  }
}

void RefStream::LinearPair(const LinearPairArgs& args) {
  checker_.Check(args);
  const std::vector<double> y = AsRef(args.weight).Multiply(args.x);
  const int64_t hidden = args.weight->rows() / 2;
  for (int64_t r = 0; r < args.out.rows; ++r) {
    for (int64_t n = 0; n < hidden; ++n) {
      const double gate = y[static_cast<size_t>(r * 2 * hidden + n)];
      const double up = y[static_cast<size_t>(r * 2 * hidden + hidden + n)];
      Store(args.out, r, n, Silu(gate) * up);
    }
  }
}

void RefStream::RmsNorm(const RmsNormArgs& args) {
  checker_.Check(args);
  const BatchPlan& decoder = plan(PlanId::kDecoder);
  // Rows beyond the plan have no delay of their own and nobody reads them.
  const int64_t rows = args.scales.empty() ? args.x.rows : decoder.rows;
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<float> x = LoadRow(args.x, r);
    double squares = 0.0;
    for (float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(args.epsilon));
    for (int64_t i = 0; i < args.x.cols; ++i) {
      double value =
          static_cast<double>(x[static_cast<size_t>(i)]) * inverse * static_cast<double>(Load(args.gain, 0, i));
      if (!args.scales.empty()) {
        value *= static_cast<double>(Load(args.scales, decoder.delay_row[static_cast<size_t>(r)], i));
      }
      Store(args.out, r, i, value);
    }
  }
}

void RefStream::Gelu(const ElementwiseArgs& args) {
  checker_.CheckGelu(args);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t i = 0; i < args.x.cols; ++i) {
      Store(args.out, r, i, voxrt::backend::Gelu(static_cast<double>(Load(args.x, r, i))));
    }
  }
}

void RefStream::Add(const ElementwiseArgs& args) {
  checker_.CheckAdd(args);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t i = 0; i < args.x.cols; ++i) {
      Store(args.out, r, i, static_cast<double>(Load(args.out, r, i)) + static_cast<double>(Load(args.x, r, i)));
    }
  }
}

void RefStream::Copy(const ElementwiseArgs& args) {
  checker_.CheckCopy(args);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t i = 0; i < args.x.cols; ++i) Store(args.out, r, i, static_cast<double>(Load(args.x, r, i)));
  }
}

void RefStream::AttentionInput(const AttentionInputArgs& args) { ComposeAttentionInput(*this, args); }

void RefStream::AttentionOutput(const AttentionOutputArgs& args) { ComposeAttentionOutput(*this, args); }

void RefStream::FeedForwardInput(const FeedForwardInputArgs& args) { ComposeFeedForwardInput(*this, args); }

void RefStream::Head(const HeadArgs& args) {
  checker_.Check(args);
  const auto wanted = static_cast<int64_t>(plan(PlanId::kDecoder).head_rows.size());
  if (wanted == 0) return;
  const int64_t vocab = args.weight->rows();
  std::vector<float> scratch;
  View logits = args.logits;
  if (logits.empty()) {
    scratch.resize(static_cast<size_t>(wanted * vocab));
    logits = {.data = scratch.data(), .dtype = DType::kF32, .rows = wanted, .cols = vocab, .stride = vocab};
  }
  for (int64_t i = 0; i < wanted; ++i) {
    const int32_t row = plan(PlanId::kDecoder).head_rows[static_cast<size_t>(i)];
    RmsNorm({.x = args.x.Rows(row, 1),
             .gain = args.gain,
             .scales = {},
             .epsilon = args.epsilon,
             .out = args.normed.Rows(i, 1)});
  }
  Linear({.x = args.normed.Rows(0, wanted), .weight = args.weight, .out = logits.Rows(0, wanted)});
  ArgMax({.logits = logits, .out = args.token});
}

}  // namespace voxrt::backend
