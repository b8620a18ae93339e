// Streaming log-mel (docs/model.md 2). Every frame is computed by the same code from the same 400 floats, however the
// samples were cut up, so that any chunking gives the same bits. What it does not do: padding with zeros (the session's
// task) and resampling.
//
// Time and memory: `buffer` holds a contiguous stretch of the signal, beginning at sample `base`.
//
//   sample   -200 ........ 0 ................................. total
//            [ mirrored   ][ pushed                            ]
//            ^base = -200 at the start; afterwards 160 * next_row - 200
//
// Push copies at most kBlockSamples at a time into the buffer, computes all rows that are complete and moves the tail
// to the front. Nothing is allocated after construction except by the caller's `rows` vector.
#include "audio/mel.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <kissfft/kissfft.hh>
#include <numbers>

#include "base/check.h"

namespace voxrt::audio {
namespace {

constexpr int64_t kBlockSamples = 4096;
constexpr float kPowerFloor = 1e-10f;  // keeps log10 away from 0; far below the dynamic range floor
constexpr float kDynamicRange = 8.0f;  // decades below log_mel_max that are kept

// Slaney's mel scale: linear below 1 kHz, logarithmic above.
constexpr double kBreakHz = 1000.0;
constexpr double kBreakMel = 15.0;
constexpr double kMelPerLogHz = 27.0 / 1.8562979903656263;  // ln 6.4

double HzToMel(double hz) {
  return hz < kBreakHz ? hz * 3.0 / 200.0 : kBreakMel + std::log(hz / kBreakHz) * kMelPerLogHz;
}

double MelToHz(double mel) {
  return mel < kBreakMel ? mel * 200.0 / 3.0 : kBreakHz * std::exp((mel - kBreakMel) / kMelPerLogHz);
}

int FrequencyCount(const MelOptions& options) { return options.window_samples / 2 + 1; }

}  // namespace

std::vector<float> MelFilterBank(const MelOptions& options) {
  const int frequencies = FrequencyCount(options);
  const double top_mel = HzToMel(options.sample_rate / 2.0);
  std::vector<double> edges_hz(static_cast<size_t>(options.bins) + 2);
  for (size_t i = 0; i < edges_hz.size(); ++i) {
    edges_hz[i] = MelToHz(top_mel * static_cast<double>(i) / static_cast<double>(options.bins + 1));
  }
  std::vector<float> bank(static_cast<size_t>(frequencies) * static_cast<size_t>(options.bins));  // [frequencies, bins]
  for (int k = 0; k < frequencies; ++k) {
    const double hz = static_cast<double>(k) * options.sample_rate / options.window_samples;
    for (int b = 0; b < options.bins; ++b) {
      const double low = edges_hz[b], middle = edges_hz[b + 1], high = edges_hz[b + 2];
      const double triangle = std::min((hz - low) / (middle - low), (high - hz) / (high - middle));
      bank[static_cast<size_t>(k) * options.bins + b] =
          static_cast<float>(std::max(0.0, triangle) * 2.0 / (high - low));
    }
  }
  return bank;
}

struct MelStream::State {
  explicit State(const MelOptions& o);

  // The non-zero weights of one bin: a run of neighbouring frequencies.
  struct Filter {
    int first_frequency = 0;
    int count = 0;
    int first_weight = 0;  // into `weights`
  };

  void BuildFilters();
  void Start();
  // Appends samples to the buffer; there must be room.
  void Append(std::span<const float> samples);
  // Computes all rows whose samples exist, at most up to row `limit`.
  int64_t Emit(int64_t limit, std::vector<float>* rows);
  void MirrorStart();
  // frame: [window_samples] fp32, row: [bins] fp32
  void ComputeRow(const float* frame, float* row);

  MelOptions options;
  int64_t half_window = 0;
  std::vector<float> window;                  // [window_samples] periodic Hann
  std::vector<Filter> filters;                // [bins]
  std::vector<float> weights;                 // non-zero filter weights, bin after bin
  kissfft<float> fft;                         // of window_samples reals
  std::vector<float> windowed;                // [window_samples]
  std::vector<std::complex<float>> spectrum;  // [window_samples / 2]; element 0 holds the two real ends
  std::vector<float> power;                   // [window_samples / 2 + 1]

  std::vector<float> buffer;  // samples base .. base + filled - 1
  int64_t filled = 0;
  int64_t base = 0;   // index of buffer[0] in the signal; negative at the start
  int64_t total = 0;  // samples pushed
  int64_t next_row = 0;
  bool mirrored = false;  // the samples before index 0 are in the buffer
  bool finished = false;
};

MelStream::State::State(const MelOptions& o)
    : options(o), half_window(o.window_samples / 2), fft(static_cast<size_t>(o.window_samples / 2), false) {
  VOXRT_CHECK(o.sample_rate > 0 && o.bins > 0 && o.hop_samples > 0);
  VOXRT_CHECK(o.window_samples >= 2 && o.window_samples % 2 == 0 && o.hop_samples <= o.window_samples);
  const size_t n = static_cast<size_t>(o.window_samples);
  window.resize(n);
  for (size_t i = 0; i < n; ++i) {
    window[i] = static_cast<float>(
        0.5 - 0.5 * std::cos(2.0 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(n)));
  }
  windowed.resize(n);
  spectrum.resize(n / 2);
  power.resize(n / 2 + 1);
  buffer.resize(n + static_cast<size_t>(kBlockSamples) + n);
  BuildFilters();
  Start();
}

void MelStream::State::BuildFilters() {
  const std::vector<float> bank = MelFilterBank(options);
  filters.resize(static_cast<size_t>(options.bins));
  for (int b = 0; b < options.bins; ++b) {
    Filter& filter = filters[b];
    filter.first_weight = static_cast<int>(weights.size());
    for (int k = 0; k < FrequencyCount(options); ++k) {
      const float weight = bank[static_cast<size_t>(k) * options.bins + b];
      if (weight <= 0.0f) continue;
      if (filter.count == 0) filter.first_frequency = k;
      ++filter.count;
      weights.push_back(weight);
    }
  }
}

void MelStream::State::Start() {
  base = -half_window;
  filled = half_window;  // room for the mirrored samples
  total = 0;
  next_row = 0;
  mirrored = false;
  finished = false;
}

void MelStream::State::Append(std::span<const float> samples) {
  VOXRT_DCHECK(filled + static_cast<int64_t>(samples.size()) <= static_cast<int64_t>(buffer.size()));
  std::copy(samples.begin(), samples.end(), buffer.begin() + filled);
  filled += static_cast<int64_t>(samples.size());
}

void MelStream::State::MirrorStart() {
  // x[-half_window] meets window weight 0 and x[half_window] may not exist yet: any finite value does.
  buffer[0] = 0.0f;
  for (int64_t i = 1; i < half_window; ++i) buffer[half_window - i] = buffer[half_window + i];
  mirrored = true;
}

int64_t MelStream::State::Emit(int64_t limit, std::vector<float>* rows) {
  const int64_t end = base + filled;
  int64_t count = 0;
  while (next_row < limit && options.hop_samples * next_row + half_window <= end) {
    if (!mirrored) MirrorStart();
    const size_t at = rows->size();
    rows->resize(at + static_cast<size_t>(options.bins));
    ComputeRow(buffer.data() + (options.hop_samples * next_row - half_window - base), rows->data() + at);
    ++next_row;
    ++count;
  }
  const int64_t drop = std::min(filled, options.hop_samples * next_row - half_window - base);
  if (drop > 0) {
    std::copy(buffer.begin() + drop, buffer.begin() + filled, buffer.begin());
    base += drop;
    filled -= drop;
  }
  return count;
}

void MelStream::State::ComputeRow(const float* frame, float* row) {
  for (size_t i = 0; i < windowed.size(); ++i) windowed[i] = frame[i] * window[i];
  fft.transform_real(windowed.data(), spectrum.data());
  power[0] = spectrum[0].real() * spectrum[0].real();
  power.back() = spectrum[0].imag() * spectrum[0].imag();
  for (size_t k = 1; k < spectrum.size(); ++k) {
    power[k] = spectrum[k].real() * spectrum[k].real() + spectrum[k].imag() * spectrum[k].imag();
  }
  constexpr float kLog10Of2 = std::numbers::ln2_v<float> / std::numbers::ln10_v<float>;
  const float floor = options.log_mel_max - kDynamicRange;
  for (size_t b = 0; b < filters.size(); ++b) {
    const Filter& filter = filters[b];
    const float* weight = weights.data() + filter.first_weight;
    const float* p = power.data() + filter.first_frequency;
    float sum = 0.0f;
    for (int i = 0; i < filter.count; ++i) sum += weight[i] * p[i];
    const float decades = std::log2(std::max(sum, kPowerFloor)) * kLog10Of2;
    row[b] = (std::max(decades, floor) + 4.0f) / 4.0f;
  }
}

MelStream::MelStream(const MelOptions& options) : state_(std::make_unique<State>(options)) {}
MelStream::~MelStream() = default;
MelStream::MelStream(MelStream&&) noexcept = default;
MelStream& MelStream::operator=(MelStream&&) noexcept = default;

int64_t MelStream::Push(std::span<const float> samples, std::vector<float>* rows) {
  State& s = *state_;
  VOXRT_CHECK(!s.finished);
  int64_t count = 0;
  while (!samples.empty()) {
    const size_t n = std::min(samples.size(), static_cast<size_t>(kBlockSamples));
    s.Append(samples.first(n));
    s.total += static_cast<int64_t>(n);
    samples = samples.subspan(n);
    count += s.Emit(INT64_MAX, rows);
  }
  return count;
}

int64_t MelStream::Finish(std::vector<float>* rows) {
  State& s = *state_;
  if (s.finished) return 0;
  s.finished = true;
  const int64_t row_count = s.total / s.options.hop_samples;
  if (row_count == 0 || s.next_row >= row_count) return 0;
  // x[N - 1 + i] = x[N - 1 - i]: what the last row reaches past the end.
  const int64_t reach = s.options.hop_samples * (row_count - 1) + s.half_window - s.total;
  const int64_t last = s.filled - 1;
  for (int64_t i = 1; i <= reach; ++i) {
    VOXRT_CHECK(last - i >= 0);
    s.buffer[last + i] = s.buffer[last - i];
  }
  s.filled += std::max<int64_t>(reach, 0);
  return s.Emit(row_count, rows);
}

void MelStream::Reset() { state_->Start(); }

int64_t MelStream::samples() const { return state_->total; }
int64_t MelStream::rows() const { return state_->next_row; }

}  // namespace voxrt::audio
