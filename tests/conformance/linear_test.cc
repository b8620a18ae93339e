// Linear, LinearPair and Embed of every backend in every format against ref, and row independence bit for bit.
#include <cmath>

#include "fixture.h"
#include "support/tolerance.h"

namespace voxrt::test {
namespace {

using backend::Epilogue;
using backend::LinearRole;
using backend::PreparedLinear;
using backend::Stream;
using backend::View;
using quant::DType;

// Rows of very different size, one of them zero, as the operation sees them (rounded to the activation type).
Matrix Activations(Random& random, int64_t rows, int64_t cols, DType dtype) {
  Matrix x = random.Normals(rows, cols);
  for (int64_t r = 0; r < rows; ++r) {
    const float scale = r % 5 == 1 ? 300.0f : r % 5 == 2 ? 1e-3f : r % 7 == 3 ? 0.0f : 1.0f;
    for (int64_t c = 0; c < cols; ++c) {
      const float value = x.at(r, c) * scale;
      x.at(r, c) = dtype == DType::kBF16  ? quant::RoundToBF16(value)
                   : dtype == DType::kF16 ? quant::F16ToF32(quant::F32ToF16(value))
                                          : value;
    }
  }
  return x;
}

struct Shape {
  int64_t out;
  int64_t in;
  std::vector<int64_t> rows;
};

// Odd output rows, tails of every vector width, the model's K.
const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {{40, 1280, {1, 3, 4, 5, 8, 17, 33, 130}},
                                            {24, 256, {1, 2, 7, 64}},
                                            {8, 128, {1, 9}},
                                            {16, 3072, {1, 4}},
                                            {136, 512, {1, 5}},
                                            {8, 9216, {2}},
                                            {7, 512, {1, 4}},
                                            {1, 256, {3}},
                                            {33, 288, {1, 5}},
                                            {67, 96, {6}},
                                            {5, 37, {1, 3}},
                                            {3, 1, {2}}};
  return shapes;
}

class LinearConformance : public FormatTest {
 protected:
  Matrix Multiply(Rig& rig, const PreparedLinear& w, const Matrix& x, Epilogue epilogue, const Matrix& before,
                  DType out_dtype) {
    const View in = rig.Put(x, activation(), 8);
    const View out = rig.Put(before, out_dtype, 8);
    rig.Run(nullptr, nullptr, [&](Stream& s) { s.Linear({.x = in, .weight = &w, .out = out, .epilogue = epilogue}); });
    return rig.Get(out);
  }
};

TEST_P(LinearConformance, EqualsRefWithinTheRoundingOfItsSums) {
  Random random(11);
  for (const Shape& shape : Shapes()) {
    if (!Fits(format(), shape.out, shape.in)) continue;
    const TestWeight w(format(), shape.out, shape.in, shape.out % 3 != 0, random);
    const auto on_dev = Prepare(dev(), {&w});
    const auto on_ref = Prepare(ref(), {&w});
    if (on_dev == nullptr) continue;
    for (int64_t rows : shape.rows) {
      const Matrix x = Activations(random, rows, shape.in, activation());
      const Matrix tolerance = LinearTolerance(x, w);
      const std::string what =
          std::to_string(rows) + " rows of [" + std::to_string(shape.out) + ", " + std::to_string(shape.in) + "]";
      for (Epilogue epilogue : {Epilogue::kNone, Epilogue::kGelu, Epilogue::kAddTo}) {
        const DType dtype = epilogue == Epilogue::kAddTo ? DType::kF32 : activation();
        const Matrix before = epilogue == Epilogue::kAddTo ? random.Normals(rows, shape.out) : Matrix(rows, shape.out);
        const Matrix expected = Multiply(ref(), *on_ref, x, epilogue, before, dtype);
        const Matrix plain =
            epilogue == Epilogue::kGelu ? Multiply(ref(), *on_ref, x, Epilogue::kNone, before, DType::kF32) : Matrix();
        Matrix allowed = tolerance;
        for (size_t i = 0; i < allowed.values.size(); ++i) {
          double error = static_cast<double>(tolerance.values[i]);
          if (epilogue == Epilogue::kGelu) error = GeluTolerance(static_cast<double>(plain.values[i]), error);
          if (epilogue == Epilogue::kAddTo) error += ResultError(static_cast<double>(before.values[i]), DType::kF32);
          allowed.values[i] = static_cast<float>(error + ResultError(static_cast<double>(expected.values[i]), dtype));
        }
        ExpectWithin(Multiply(dev(), *on_dev, x, epilogue, before, dtype), expected, allowed,
                     what + ", epilogue " + std::to_string(static_cast<int>(epilogue)));
      }
    }
  }
}

TEST_P(LinearConformance, StackedBlocksEqualTheirParts) {
  Random random(12);
  const TestWeight q(format(), 32, 256, true, random);
  const TestWeight k(format(), 16, 256, false, random);
  const TestWeight v(format(), 16, 256, true, random);
  const auto all = Prepare(dev(), {&q, &k, &v}, LinearRole::kQkv);
  ASSERT_NE(all, nullptr);
  const Matrix x = Activations(random, 5, 256, activation());
  const Matrix stacked = Multiply(dev(), *all, x, Epilogue::kNone, Matrix(5, 64), activation());
  int64_t first = 0;
  for (const TestWeight* part : {&q, &k, &v}) {
    const auto alone = Prepare(dev(), {part});
    ASSERT_NE(alone, nullptr);
    const int64_t count = part->weight().rows;
    const Matrix expected = Multiply(dev(), *alone, x, Epilogue::kNone, Matrix(5, count), activation());
    Matrix actual(5, count);
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t c = 0; c < count; ++c) actual.at(r, c) = stacked.at(r, first + c);
    }
    ExpectSameBits(actual, expected, "block at row " + std::to_string(first));
    first += count;
  }
}

TEST_P(LinearConformance, ARowHasTheSameBitsInEveryBatch) {
  Random random(13);
  for (const Shape& shape : {Shape{40, 1280, {}}, Shape{136, 256, {}}}) {
    const TestWeight w(format(), shape.out, shape.in, true, random);
    const auto prepared = Prepare(dev(), {&w});
    ASSERT_NE(prepared, nullptr);
    const Matrix x = Activations(random, 130, shape.in, activation());
    const Matrix whole = Multiply(dev(), *prepared, x, Epilogue::kNone, Matrix(130, shape.out), activation());
    for (int64_t count : {1, 2, 3, 4, 5, 8, 16, 17, 33, 65}) {
      const int64_t first = (count * 7) % (130 - count);
      const Matrix part =
          Multiply(dev(), *prepared, x.Rows(first, count), Epilogue::kNone, Matrix(count, shape.out), activation());
      ExpectSameBits(part, whole.Rows(first, count), std::to_string(count) + " rows from " + std::to_string(first));
    }
  }
}

TEST_P(LinearConformance, RowsOfNaNDoNotReachOtherRows) {
  Random random(14);
  const TestWeight w(format(), 40, 256, true, random);
  const auto prepared = Prepare(dev(), {&w});
  ASSERT_NE(prepared, nullptr);
  Matrix x = Activations(random, 17, 256, activation());
  const Matrix clean = Multiply(dev(), *prepared, x, Epilogue::kNone, Matrix(17, 40), activation());
  for (int64_t c = 0; c < 256; ++c) x.at(8, c) = std::nanf("");
  const Matrix dirty = Multiply(dev(), *prepared, x, Epilogue::kNone, Matrix(17, 40), activation());
  ExpectSameBits(dirty.Rows(0, 8), clean.Rows(0, 8), "rows before");
  ExpectSameBits(dirty.Rows(9, 8), clean.Rows(9, 8), "rows after");
}

TEST_P(LinearConformance, PairEqualsRefAndItsRowsAreIndependent) {
  Random random(15);
  for (const Shape& shape : {Shape{24, 256, {}}, Shape{40, 1280, {}}, Shape{7, 64, {}}, Shape{72, 512, {}}}) {
    if (!Fits(format(), shape.out, shape.in)) continue;
    const TestWeight gate(format(), shape.out, shape.in, false, random);
    const TestWeight up(format(), shape.out, shape.in, false, random);
    const auto on_dev = Prepare(dev(), {&gate, &up}, LinearRole::kGateUp);
    const auto on_ref = Prepare(ref(), {&gate, &up}, LinearRole::kGateUp);
    const auto ref_gate = Prepare(ref(), {&gate});
    const auto ref_up = Prepare(ref(), {&up});
    if (on_dev == nullptr) continue;
    const Matrix x = Activations(random, 33, shape.in, activation());
    const auto pair = [&](Rig& rig, const PreparedLinear& w, const Matrix& rows) {
      const View in = rig.Put(rows, activation(), 4);
      const View out = rig.Poisoned(rows.rows, shape.out, activation(), 4);
      rig.Run(nullptr, nullptr, [&](Stream& s) { s.LinearPair({.x = in, .weight = &w, .out = out}); });
      return rig.Get(out);
    };
    const Matrix zero(33, shape.out);
    const Matrix g = Multiply(ref(), *ref_gate, x, Epilogue::kNone, zero, DType::kF32);
    const Matrix u = Multiply(ref(), *ref_up, x, Epilogue::kNone, zero, DType::kF32);
    const Matrix g_error = LinearTolerance(x, gate);
    const Matrix u_error = LinearTolerance(x, up);
    const Matrix expected = pair(ref(), *on_ref, x);
    Matrix allowed(33, shape.out);
    for (size_t i = 0; i < allowed.values.size(); ++i) {
      allowed.values[i] =
          static_cast<float>(PairTolerance(static_cast<double>(g.values[i]), static_cast<double>(g_error.values[i]),
                                           static_cast<double>(u.values[i]), static_cast<double>(u_error.values[i])) +
                             ResultError(static_cast<double>(expected.values[i]), activation()));
    }
    const Matrix whole = pair(dev(), *on_dev, x);
    const std::string what = "pair of [" + std::to_string(shape.out) + ", " + std::to_string(shape.in) + "]";
    ExpectWithin(whole, expected, allowed, what);
    for (int64_t count : {1, 4, 5, 8, 17}) {
      ExpectSameBits(pair(dev(), *on_dev, x.Rows(3, count)), whole.Rows(3, count),
                     what + ", " + std::to_string(count) + " rows");
    }
  }
}

TEST_P(LinearConformance, EmbedReadsTheExactRowsAndAddsTheAudio) {
  Random random(16);
  const int64_t vocab = format().kind == quant::FormatKind::kInt4Tile ? 1288 : 1283;
  const TestWeight table(format(), vocab, 256, false, random);
  const auto on_dev = Prepare(dev(), {&table}, LinearRole::kHead);
  if (on_dev == nullptr) GTEST_SKIP() << "the device refuses a vocabulary of " << vocab;
  backend::BatchPlan plan = MakePlan({{0, 1, 0}, {2, 3, 5}, {1, 2, 9}}, 128);
  plan.token = {0, static_cast<int32_t>(vocab - 1), 7, 1000, 7, 513};
  plan.audio_row = {3, 0, 1, 4, 5, 2};
  const Matrix audio = random.Normals(6, 256);
  const Matrix values = table.Values();
  for (bool with_audio : {true, false}) {
    const View sound = dev().Put(audio, DType::kF32, 4);
    const View out = dev().Poisoned(6, 256, DType::kF32, 4);
    dev().Run(nullptr, &plan,
              [&](Stream& s) { s.Embed({.table = on_dev.get(), .audio = with_audio ? sound : View{}, .out = out}); });
    Matrix expected(6, 256);
    for (int64_t r = 0; r < 6; ++r) {
      for (int64_t c = 0; c < 256; ++c) {
        const float sum = values.at(plan.token[static_cast<size_t>(r)], c);
        expected.at(r, c) = with_audio ? sum + audio.at(plan.audio_row[static_cast<size_t>(r)], c) : sum;
      }
    }
    ExpectSameBits(dev().Get(out), expected, with_audio ? "with audio" : "without audio");
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LinearConformance);
INSTANTIATE_TEST_SUITE_P(Backends, LinearConformance,
                         testing::Combine(testing::ValuesIn(BackendsBesidesRef()), testing::ValuesIn(AllFormats())),
                         BackendAndFormatName);

}  // namespace
}  // namespace voxrt::test
