// Differential fuzzing of backends: the input chooses an operation, its shapes, its rows and how they are cut into
// calls; the cpu backend must agree with ref within the computed tolerance, and with itself, bit for bit, however the
// rows are cut.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/registry.h"
#include "support/rig.h"
#include "support/sessions.h"
#include "support/tolerance.h"
#include "support/weights.h"

namespace voxrt::test {
namespace {

using backend::BatchPlan;
using backend::LinearRole;
using backend::PlanId;
using backend::PreparedLinear;
using backend::Stream;
using backend::View;
using quant::DType;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "backends disagree: %s\n", what.c_str());
  std::abort();
}

void RequireWithin(const Matrix& actual, const Matrix& expected, const Matrix& tolerance, const std::string& what) {
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double error = std::fabs(static_cast<double>(actual.values[i]) - static_cast<double>(expected.values[i]));
    if (!(error <= static_cast<double>(tolerance.values[i]))) {
      Fail(what + ", element " + std::to_string(i) + ": " + std::to_string(actual.values[i]) + ", expected " +
           std::to_string(expected.values[i]) + " within " + std::to_string(tolerance.values[i]));
    }
  }
}

void RequireSameBits(const Matrix& actual, const Matrix& expected, const std::string& what) {
  if (actual.values.size() != expected.values.size()) Fail(what + ": sizes");
  for (size_t i = 0; i < expected.values.size(); ++i) {
    if (std::bit_cast<uint32_t>(actual.values[i]) != std::bit_cast<uint32_t>(expected.values[i])) {
      Fail(what + ", element " + std::to_string(i) + " depends on how rows are cut into calls");
    }
  }
}

// 1 .. limit rows, `total` in all.
std::vector<int64_t> Cut(FuzzedDataProvider& in, int64_t total, int64_t limit) {
  std::vector<int64_t> sizes;
  while (total > 0) {
    sizes.push_back(in.ConsumeIntegralInRange<int64_t>(1, std::min(total, limit)));
    total -= sizes.back();
  }
  return sizes;
}

struct Rigs {
  std::unique_ptr<Rig> dev;
  std::unique_ptr<Rig> ref;
};

Rigs OpenRigs(const backend::SessionStateSpec& state) {
  std::string why;
  Rigs rigs{Rig::Open("cpu", state, &why), Rig::Open("ref", state, &why)};
  if (rigs.dev == nullptr) Fail("cpu cannot be opened: " + why);
  return rigs;
}

Matrix RunLinear(Rig& rig, const PreparedLinear& w, const Matrix& x, int64_t out_cols, int64_t pad) {
  const View in = rig.Put(x, DType::kF32, pad);
  const View out = rig.Poisoned(x.rows, out_cols, DType::kF32, pad);
  const bool pair = w.role() == LinearRole::kGateUp;
  rig.Run(nullptr, nullptr, [&](Stream& s) {
    if (pair) {
      s.LinearPair({.x = in, .weight = &w, .out = out});
    } else {
      s.Linear({.x = in, .weight = &w, .out = out});
    }
  });
  return rig.Get(out);
}

void FuzzLinear(FuzzedDataProvider& in, Random& random) {
  const Rigs rigs = OpenRigs(SmallState(24, 40));
  const std::vector<quant::Format> formats = AllFormats();
  const quant::Format format = formats[in.ConsumeIntegralInRange<size_t>(0, formats.size() - 1)];
  if (!rigs.dev->device().Supports(format)) return;
  const int64_t step =
      format.group != 0 ? std::max(format.group, format.kind == quant::FormatKind::kInt4Tile ? 128 : 32) : 1;
  const int64_t cols = step * in.ConsumeIntegralInRange<int64_t>(1, std::max<int64_t>(1, 700 / step));
  int64_t rows = in.ConsumeIntegralInRange<int64_t>(1, 70);
  if (format.kind == quant::FormatKind::kInt4Tile) rows = (rows + 7) / 8 * 8;
  const bool pair = in.ConsumeBool();
  const TestWeight first(format, rows, cols, !pair && in.ConsumeBool(), random);
  const TestWeight second(format, rows, cols, false, random);
  backend::LinearSpec spec{
      .name = "w", .role = pair ? LinearRole::kGateUp : LinearRole::kPlain, .blocks = {first.block()}};
  if (pair) spec.blocks.push_back(second.block());
  const auto on_dev = rigs.dev->device().Prepare(spec);
  const auto on_ref = rigs.ref->device().Prepare(spec);
  if (!on_dev.ok() || !on_ref.ok())
    Fail("a weight was refused: " + on_dev.status().message() + on_ref.status().message());

  const int64_t count = in.ConsumeIntegralInRange<int64_t>(1, 40);
  const Matrix x = random.Normals(count, cols, std::exp(random.Uniform(-9.0f, 9.0f)));
  const int64_t pad = in.ConsumeIntegralInRange<int64_t>(0, 9);
  const Matrix expected = RunLinear(*rigs.ref, **on_ref, x, rows, pad);
  const Matrix actual = RunLinear(*rigs.dev, **on_dev, x, rows, pad);
  Matrix allowed = LinearTolerance(x, first);
  Matrix gate;
  Matrix up;
  Matrix up_error;
  if (pair) {
    const auto ref_gate =
        rigs.ref->device().Prepare({.name = "g", .role = LinearRole::kPlain, .blocks = {first.block()}});
    const auto ref_up =
        rigs.ref->device().Prepare({.name = "u", .role = LinearRole::kPlain, .blocks = {second.block()}});
    gate = RunLinear(*rigs.ref, **ref_gate, x, rows, 0);
    up = RunLinear(*rigs.ref, **ref_up, x, rows, 0);
    up_error = LinearTolerance(x, second);
  }
  for (size_t i = 0; i < allowed.values.size(); ++i) {
    const auto error = static_cast<double>(allowed.values[i]);
    const double product =
        pair ? PairTolerance(static_cast<double>(gate.values[i]), error, static_cast<double>(up.values[i]),
                             static_cast<double>(up_error.values[i]))
             : error;
    allowed.values[i] = static_cast<float>(product + ResultError(static_cast<double>(expected.values[i]), DType::kF32));
  }
  const std::string what =
      FormatName(format) + (pair ? " pair [" : " [") + std::to_string(rows) + ", " + std::to_string(cols) + "]";
  RequireWithin(actual, expected, allowed, what);
  int64_t at = 0;
  for (int64_t size : Cut(in, count, count)) {
    RequireSameBits(RunLinear(*rigs.dev, **on_dev, x.Rows(at, size), rows, pad), actual.Rows(at, size), what);
    at += size;
  }
}

void FuzzAttention(FuzzedDataProvider& in, Random& random) {
  const DType types[] = {DType::kF32, DType::kBF16, DType::kI8};
  const int64_t window = in.ConsumeIntegralInRange<int64_t>(1, 80);
  backend::SessionStateSpec state = SmallState(window, window, in.PickValueInArray(types));
  state.encoder.max_rows = state.decoder.max_rows = in.ConsumeIntegralInRange<int64_t>(1, 70);
  const Rigs rigs = OpenRigs(state);
  AttentionRun run{.plan = in.ConsumeBool() ? PlanId::kEncoder : PlanId::kDecoder, .heads = in.ConsumeBool() ? 2 : 6};
  run.spare_rows = in.ConsumeIntegralInRange<int64_t>(0, 3);
  const int64_t count = in.ConsumeIntegralInRange<int64_t>(1, 200);
  const Matrix qkv = random.Normals(count, run.qkv_cols(), random.Uniform(0.1f, 2.0f));
  const Matrix neighbour = random.Normals(count, run.qkv_cols());
  const Matrix expected = run.Session(*rigs.ref, 1, qkv, {count});
  const Matrix actual = run.Session(*rigs.dev, 1, qkv, {count});
  RequireWithin(actual, expected, AttentionTolerance(run, window, qkv, expected),
                "attention, window " + std::to_string(window));
  // Again in pieces beside another session, with rejected rows after some of them.
  rigs.dev->state().Clear(1);
  int64_t at = 0;
  for (int64_t size : Cut(in, count, count)) {
    std::vector<Feed> feeds;
    const bool first = in.ConsumeBool();
    if (first) feeds.push_back({.slot = 0, .qkv = &neighbour, .first = at, .rows = size});
    feeds.push_back({.slot = 1, .qkv = &qkv, .first = at, .rows = size});
    const Matrix out = run.Call(*rigs.dev, feeds);
    RequireSameBits(out.Rows(first ? size : 0, size), actual.Rows(at, size), "attention");
    at += size;
    const int64_t guess = std::min<int64_t>(in.ConsumeIntegralInRange<int64_t>(0, state.decoder.max_rows), count - at);
    if (guess > 0) run.Call(*rigs.dev, {{.slot = 1, .qkv = &neighbour, .first = at, .rows = guess}});
  }
}

void FuzzNorm(FuzzedDataProvider& in, Random& random) {
  const Rigs rigs = OpenRigs(SmallState(24, 40));
  const int64_t cols = in.ConsumeIntegralInRange<int64_t>(1, 900);
  const int rows = in.ConsumeIntegralInRange<int>(1, 20);
  const Matrix x = random.Normals(rows, cols, std::exp(random.Uniform(-9.0f, 9.0f)));
  const Matrix gain = random.Normals(1, cols);
  const Matrix scales = random.Normals(2, cols);
  BatchPlan plan = MakePlan({{0, rows, 0}}, 128);
  for (int r = 0; r < rows; ++r) plan.delay_row.push_back(in.ConsumeBool() ? 1 : 0);
  const bool scaled = in.ConsumeBool();
  const auto norm = [&](Rig& rig) {
    const View source = rig.Put(x);
    const View out = rig.Poisoned(rows, cols);
    const View g = rig.Put(gain);
    const View s = scaled ? rig.Put(scales) : View{};
    rig.Run(nullptr, &plan, [&](Stream& stream) {
      stream.RmsNorm({.x = source, .gain = g, .scales = s, .epsilon = 1e-5f, .out = out});
    });
    return rig.Get(out);
  };
  const Matrix expected = norm(*rigs.ref);
  Matrix allowed = expected;
  for (float& value : allowed.values) {
    const double magnitude = std::fabs(static_cast<double>(value));
    value = static_cast<float>((SumError(cols) / 2 + 8 * 0x1p-24) * magnitude + ResultError(magnitude, DType::kF32));
  }
  RequireWithin(norm(*rigs.dev), expected, allowed, "norm of " + std::to_string(cols));
}

void FuzzArgMax(FuzzedDataProvider& in) {
  const Rigs rigs = OpenRigs(SmallState(24, 40));
  const int64_t vocab = in.ConsumeIntegralInRange<int64_t>(1, 300);
  BatchPlan plan = MakePlan({{0, 2, 0}, {2, 1, 0}}, 128);
  plan.head_rows = {0, 2};
  Matrix logits(2, vocab);
  for (float& value : logits.values) value = static_cast<float>(in.ConsumeIntegralInRange<int>(-3, 3));
  const auto best = [&](Rig& rig) {
    const View source = rig.Put(logits, DType::kF32, 3);
    const View out = rig.PoisonedInts(2);
    rig.Run(nullptr, &plan, [&](Stream& s) { s.ArgMax({.logits = source, .out = out}); });
    return rig.GetInts(out);
  };
  if (best(*rigs.dev) != best(*rigs.ref)) Fail("arg-max of " + std::to_string(vocab));
}

}  // namespace
}  // namespace voxrt::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  voxrt::test::Random random(in.ConsumeIntegral<uint32_t>());
  switch (in.ConsumeIntegralInRange<int>(0, 3)) {
    case 0:
      voxrt::test::FuzzLinear(in, random);
      break;
    case 1:
      voxrt::test::FuzzAttention(in, random);
      break;
    case 2:
      voxrt::test::FuzzNorm(in, random);
      break;
    default:
      voxrt::test::FuzzArgMax(in);
      break;
  }
  return 0;
}
