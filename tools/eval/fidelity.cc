// How much speech a format costs: every model over the same clips at several delays and gains, word errors and pad
// counts against the first model (the BF16 one), with paired 95 % intervals. Rows are added to the JSON table --out
// (docs/quantization.md); --state keeps the first model's clip scores, so that models can be evaluated one by one.
//
//   fidelity --clips DIR [--words DIR] --out FILE [--state FILE] --model bf16=DIR --model 4w_g32=FILE ...
//            [--kv-type int8 --model bf16_kv8=DIR ...] [--backend cpu] [--delays 480,960,2400]
//            [--gains 4,0.3,0.1,0.02,0.005,0.001] [--condition-delay 480] [--threads N] [--commit ID]
//
// Conditions: "plain" at all delays; the gains, "start0" (speech from sample 0), "silence" (20 s of zeros first) and
// "words" (isolated short words) at one delay. Gains "none": only plain. --kv-type holds for the models named after it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "engine/engine.h"
#include "engine/evaluate.h"

namespace voxrt::engine {
namespace {

using base::Json;

constexpr int kResamples = 10000;
constexpr size_t kSilence = size_t{16000} * 20;
constexpr float kOnset = 0.01f;  // of the clip's peak

struct Model {
  std::string name;
  std::string path;
  std::string kv_type;  // empty: the backend's
};

struct Options {
  std::string clips;
  std::string words;
  std::string out;
  std::string state;  // the first model's scores per condition and clip; may be empty
  std::string backend = "cpu";
  std::string commit;
  int threads = 0;
  int condition_delay = 480;
  std::vector<int> delays = {480, 960, 2400};
  std::vector<float> gains = {4.0f, 0.3f, 0.1f, 0.02f, 0.005f, 0.001f};
  std::vector<Model> models;
};

struct Condition {
  std::string name;
  int delay_ms;
  float gain;
  std::vector<EvalClip> clips;
};

template <typename T>
std::vector<T> Numbers(const std::string& list) {
  std::vector<T> out;
  std::stringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) out.push_back(static_cast<T>(std::atof(item.c_str())));
  return out;
}

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "fidelity: %s\n", message.c_str());
  std::exit(2);
}

Options Parse(int argc, char** argv) {
  Options options;
  std::string kv_type;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--clips")
      options.clips = value;
    else if (flag == "--words")
      options.words = value;
    else if (flag == "--out")
      options.out = value;
    else if (flag == "--state")
      options.state = value;
    else if (flag == "--backend")
      options.backend = value;
    else if (flag == "--commit")
      options.commit = value;
    else if (flag == "--kv-type")
      kv_type = value;
    else if (flag == "--threads")
      options.threads = std::atoi(value.c_str());
    else if (flag == "--delays")
      options.delays = Numbers<int>(value);
    else if (flag == "--gains")
      options.gains = value == "none" ? std::vector<float>() : Numbers<float>(value);
    else if (flag == "--condition-delay")
      options.condition_delay = std::atoi(value.c_str());
    else if (flag == "--model" && value.find('=') != value.npos)
      options.models.push_back({value.substr(0, value.find('=')), value.substr(value.find('=') + 1), kv_type});
    else
      Fail("unknown option " + flag);
  }
  if (options.clips.empty() || options.out.empty() || options.models.empty())
    Fail("--clips, --out and --model NAME=PATH are needed");
  return options;
}

std::vector<EvalClip> Scaled(std::vector<EvalClip> clips, float gain) {
  for (EvalClip& clip : clips) {
    for (float& sample : clip.samples) sample = std::clamp(sample * gain, -1.0f, 1.0f);
  }
  return clips;
}

std::vector<EvalClip> FromOnset(std::vector<EvalClip> clips) {
  for (EvalClip& clip : clips) {
    float peak = 0.0f;
    for (const float sample : clip.samples) peak = std::max(peak, std::fabs(sample));
    const auto onset =
        std::find_if(clip.samples.begin(), clip.samples.end(), [&](float s) { return std::fabs(s) > kOnset * peak; });
    clip.samples.erase(clip.samples.begin(), onset);
  }
  return clips;
}

std::vector<EvalClip> AfterSilence(std::vector<EvalClip> clips) {
  for (EvalClip& clip : clips) clip.samples.insert(clip.samples.begin(), kSilence, 0.0f);
  return clips;
}

std::vector<Condition> MakeConditions(const Options& options) {
  auto clips = LoadClips(options.clips);
  if (!clips.ok()) Fail(clips.status().message());
  std::vector<Condition> conditions;
  for (const int delay : options.delays) conditions.push_back({"plain", delay, 1.0f, *clips});
  if (options.gains.empty()) return conditions;
  const int delay = options.condition_delay;
  for (const float gain : options.gains)
    conditions.push_back({fmt::format("gain {}", gain), delay, gain, Scaled(*clips, gain)});
  // A quarter of the clips is enough for what adds seconds to each.
  std::vector<EvalClip> quarter(clips->begin(),
                                clips->begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(1, clips->size() / 4)));
  conditions.push_back({"start0", delay, 1.0f, FromOnset(*clips)});
  conditions.push_back({"silence", delay, 1.0f, AfterSilence(quarter)});
  if (!options.words.empty()) {
    auto words = LoadClips(options.words);
    if (!words.ok()) Fail(words.status().message());
    conditions.push_back({"words", delay, 1.0f, *words});
  }
  return conditions;
}

// 95 % interval of the difference in word error rate, clips resampled together.
std::pair<double, double> PairedInterval(const std::vector<ClipScore>& base, const std::vector<ClipScore>& other) {
  std::mt19937_64 random(1);
  std::uniform_int_distribution<size_t> pick(0, base.size() - 1);
  std::vector<double> differences(kResamples);
  for (double& difference : differences) {
    int64_t words = 0;
    int64_t errors = 0;
    for (size_t i = 0; i < base.size(); ++i) {
      const size_t at = pick(random);
      words += base[at].words;
      errors += other[at].errors - base[at].errors;
    }
    difference = words > 0 ? static_cast<double>(errors) / static_cast<double>(words) : 0.0;
  }
  std::sort(differences.begin(), differences.end());
  return {differences[kResamples * 25 / 1000], differences[kResamples * 975 / 1000]};
}

Json Row(const std::string& model, const Condition& condition, const std::vector<ClipScore>& scores,
         const std::vector<ClipScore>& base) {
  const ScoreSum sum = Sum(scores);
  const ScoreSum reference = Sum(base);
  const auto [low, high] = PairedInterval(base, scores);
  const auto percent = [](double rate) { return std::round(rate * 1e4) / 1e2; };
  const double pads = reference.pads > 0 ? static_cast<double>(sum.pads) / static_cast<double>(reference.pads) : 1.0;
  return Json::MakeObject({{"model", model},
                           {"condition", condition.name},
                           {"delay_ms", condition.delay_ms},
                           {"clips", static_cast<int64_t>(scores.size())},
                           {"words", sum.words},
                           {"wer_percent", percent(sum.word_error_rate())},
                           {"difference_points", percent(sum.word_error_rate() - reference.word_error_rate())},
                           {"difference_95_low", percent(low)},
                           {"difference_95_high", percent(high)},
                           {"pads", sum.pads},
                           {"pad_ratio", std::round(pads * 1e4) / 1e4}});
}

std::string Key(const Condition& condition) { return fmt::format("{} {}", condition.name, condition.delay_ms); }

Json ReadTable(const std::string& path) {
  if (path.empty() || !std::ifstream(path).good()) return Json::MakeObject();
  auto text = base::ReadSmallFile(path, size_t{64} << 20);
  auto json = text.ok() ? base::ParseJson(*text) : Result<Json>(text.status());
  if (!json.ok()) Fail(fmt::format("{}: {}", path, json.status().message()));
  return *json;
}

void WriteTable(const std::string& path, const Json& table) {
  std::ofstream out(path);
  out << table.Dump(1) << "\n";
  out.close();
  if (!out) Fail("cannot write " + path);
}

// Scores as [[words, errors, tokens, pads], ...] and back.
Json ToJson(const std::vector<ClipScore>& scores) {
  Json::Array rows;
  for (const ClipScore& s : scores) rows.push_back(Json::MakeArray({s.words, s.errors, s.tokens, s.pads}));
  return rows;
}

std::vector<ClipScore> FromJson(const Json& json) {
  std::vector<ClipScore> scores;
  for (const Json& row : *json.AsArray()) {
    const auto number = [&](size_t i) { return row.AsArray()->at(i).AsInt().value(); };
    scores.push_back({static_cast<int>(number(0)), static_cast<int>(number(1)), number(2), number(3), ""});
  }
  return scores;
}

// Adds a row, in place of an older one of the same model and condition.
void AddRow(Json* table, Json row) {
  Json::Array kept;
  if (const Json* rows = table->Find("rows")) {
    for (const Json& old : *rows->AsArray()) {
      const bool same = *old.Find("model") == *row.Find("model") && *old.Find("condition") == *row.Find("condition") &&
                        *old.Find("delay_ms") == *row.Find("delay_ms");
      if (!same) kept.push_back(old);
    }
  }
  std::fprintf(stderr, "%s\n", row.Dump().c_str());
  kept.push_back(std::move(row));
  (*table)["rows"] = Json(std::move(kept));
}

std::shared_ptr<Engine> Open(const Model& model, const Options& options) {
  EngineOptions engine_options;
  engine_options.model_path = model.path;
  engine_options.backend = options.backend;
  engine_options.threads = options.threads;
  engine_options.kv_type = model.kv_type;
  auto created = Engine::Create(engine_options);
  if (!created.ok()) Fail(fmt::format("{}: {}", model.name, created.status().message()));
  return *created;
}

std::string Now() {
  char text[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

// What every condition of one model gives; the first model's scores are what the others are compared with.
void Evaluate(const Model& model, bool first, const Options& options, const std::vector<Condition>& conditions,
              Json* state, Json* table) {
  std::shared_ptr<Engine> engine;
  for (const Condition& condition : conditions) {
    if (first && state->Find(Key(condition)) != nullptr) continue;
    if (engine == nullptr) engine = Open(model, options);
    auto scores = ScoreClips(*engine, condition.clips, condition.delay_ms, {});
    if (!scores.ok()) Fail(fmt::format("{}: {}", model.name, scores.status().message()));
    if (first) (*state)[Key(condition)] = ToJson(*scores);
    Json row = Row(model.name, condition, *scores, FromJson(*state->Find(Key(condition))));
    row["kv_type"] = engine->info().kv_type;
    row["date"] = Now();
    row["commit"] = options.commit;
    AddRow(table, std::move(row));
    (*table)["device"] = engine->info().device;
    WriteTable(options.out, *table);
    if (first && !options.state.empty()) WriteTable(options.state, *state);
  }
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const std::vector<Condition> conditions = MakeConditions(options);
  Json state = ReadTable(options.state);
  Json table = ReadTable(options.out);
  table["what"] = "word errors and pad counts per format; differences are to the first model, clip by clip";
  table["backend"] = options.backend;
  table["bootstrap_resamples"] = kResamples;
  for (size_t m = 0; m < options.models.size(); ++m) {
    Evaluate(options.models[m], m == 0, options, conditions, &state, &table);
  }
  return 0;
}

}  // namespace
}  // namespace voxrt::engine

int main(int argc, char** argv) { return voxrt::engine::Main(argc, argv); }
