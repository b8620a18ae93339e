// Writes a checkpoint of random BF16 weights (matrices scaled by 1/sqrt(columns), as trained ones roughly are), so that
// load time, memory and speed at full size can be measured where the real weights are not. Same seed, same model, in
// either layout. The values are normal by table look-up: 16 random bits choose one of 65,536 quantiles.
//
//   make_checkpoint --size full --layout mistral OUT_DIR
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <vector>

#include "base/base64.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "weights/huggingface_names.h"
#include "weights/model_config.h"
#include "weights/safetensors_writer.h"
#include "weights/tensor_table.h"

namespace voxrt::weights {
namespace {

using base::Json;

constexpr char kUsage[] =
    "usage: make_checkpoint [--size full|demo|tiny] [--layout mistral|hf] [--hf-prefix old|new|doubled] [--shards N] "
    "[--seed N] OUT_DIR\n";

struct Options {
  std::string size = "tiny";
  bool hugging_face = false;
  PrefixStyle prefix = PrefixStyle::kNew;
  int shards = 1;
  uint64_t seed = 7;
  std::string folder = {};
};

StackConfig Stack(int64_t dim, int layers, int head_dim, int64_t hidden, int heads, int kv_heads, int64_t window) {
  StackConfig stack;
  stack.dim = dim;
  stack.layers = layers;
  stack.head_dim = head_dim;
  stack.hidden_dim = hidden;
  stack.heads = heads;
  stack.kv_heads = kv_heads;
  stack.window = window;
  return stack;
}

ModelConfig ConfigOf(const std::string& size) {
  ModelConfig config;
  config.ada_dim = 32;
  if (size == "full") {
    config.encoder = Stack(1280, 32, 64, 5120, 32, 32, 750);
    config.decoder = Stack(3072, 26, 128, 9216, 32, 8, 8192);
    config.vocab_size = 131072;
  } else if (size == "demo") {
    config.encoder = Stack(256, 8, 64, 1024, 4, 4, 150);
    config.decoder = Stack(256, 4, 128, 768, 4, 2, 128);
    config.vocab_size = 4096;
  } else {
    config.encoder = Stack(128, 3, 64, 512, 4, 4, 24);
    config.decoder = Stack(256, 3, 128, 512, 4, 2, 16);
    config.vocab_size = 1280;
  }
  return config;
}

// Standard normal quantile of p in (0, 1), by bisection: 65,536 of them are needed once.
double NormalQuantile(double p) {
  double low = -8;
  double high = 8;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

using Table = std::vector<uint16_t>;  // BF16 values by 16 random bits

// One table per mean and deviation.
class Tables {
 public:
  Tables() : quantiles_(65536) {
    for (size_t i = 0; i < quantiles_.size(); ++i) {
      quantiles_[i] = static_cast<float>(NormalQuantile((static_cast<double>(i) + 0.5) / 65536));
    }
  }
  const Table& Get(float mean, float deviation) {
    Table& table = tables_[{mean, deviation}];
    if (!table.empty()) return table;
    table.reserve(quantiles_.size());
    for (const float quantile : quantiles_) table.push_back(quant::F32ToBF16(mean + deviation * quantile));
    return table;
  }

 private:
  std::vector<float> quantiles_;
  std::map<std::pair<float, float>, Table> tables_;
};

// Mean and deviation of a tensor's values by its role.
std::pair<float, float> Distribution(const TensorSpec& spec) {
  const std::string_view name = spec.name;
  if (name.ends_with("norm.weight")) return {1.0f, 0.1f};
  if (name.ends_with(".bias")) return {0.0f, 0.02f};
  if (name == kEmbeddingName) return {0.0f, 0.05f};
  int64_t inputs = 1;
  for (size_t i = 1; i < spec.shape.size(); ++i) inputs *= spec.shape[i];
  return {0.0f, 1.0f / std::sqrt(static_cast<float>(inputs))};
}

uint64_t Mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t Hash(std::string_view text, uint64_t seed) {
  uint64_t hash = Mix(seed);
  for (const char c : text) hash = Mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

// One tensor to be written: where, and which rows (Hugging Face's wq and wk have theirs in half-split order).
struct Job {
  SafetensorsWriter* writer = nullptr;
  size_t index = 0;
  uint64_t seed = 0;
  const Table* table = nullptr;
  int64_t rows = 0;
  int64_t cols = 1;
  int head_dim = 0;  // 0 = rows in Mistral's order
};

// Rows [first, last) of the stored tensor.
void FillRows(const Job& job, int64_t first, int64_t last, std::vector<uint16_t>* out) {
  out->resize(static_cast<size_t>((last - first) * job.cols));
  uint16_t* at = out->data();
  for (int64_t row = first; row < last; ++row) {
    int64_t source = row;
    if (job.head_dim != 0) {
      const int64_t in_head = row % job.head_dim;
      const int64_t half = job.head_dim / 2;
      source = row - in_head + 2 * (in_head % half) + in_head / half;
    }
    uint64_t state = Mix(job.seed + static_cast<uint64_t>(source));
    for (int64_t col = 0; col < job.cols; col += 4) {
      const uint64_t bits = Mix(state++);
      const int64_t count = std::min<int64_t>(4, job.cols - col);
      for (int64_t i = 0; i < count; ++i) *at++ = (*job.table)[(bits >> (16 * i)) & 0xffffu];
    }
  }
}

Status FillAll(const std::vector<Job>& jobs) {
  struct Piece {
    const Job* job;
    int64_t first, last;
  };
  std::vector<Piece> pieces;
  for (const Job& job : jobs) {
    const int64_t step = std::max<int64_t>(1, (int64_t{1} << 20) / job.cols);
    for (int64_t row = 0; row < job.rows; row += step) pieces.push_back({&job, row, std::min(job.rows, row + step)});
  }
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status status;
  base::ThreadPool pool(0);
  pool.Run([&](int, int) {
    std::vector<uint16_t> values;
    for (size_t i = next++; i < pieces.size(); i = next++) {
      const Job& job = *pieces[i].job;
      FillRows(job, pieces[i].first, pieces[i].last, &values);
      const Status written =
          job.writer->Write(job.index, pieces[i].first * job.cols * 2, std::as_bytes(std::span(values)));
      if (written.ok()) continue;
      const std::lock_guard lock(mutex);
      status = written;
      next = pieces.size();
    }
  });
  return status;
}

int HeadDimOf(const ModelConfig& config, std::string_view name) {
  if (name.find("attention.wq.") == name.npos && name.find("attention.wk.") == name.npos) return 0;
  return name.find("whisper_encoder") != name.npos ? config.encoder.head_dim : config.decoder.head_dim;
}

void WriteText(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string TekkenJson(int64_t vocabulary) {
  constexpr int64_t kSpecial = 1000;
  const std::map<int64_t, const char*> named = {
      {0, "<unk>"}, {1, "<s>"}, {2, "</s>"}, {32, "[STREAMING_PAD]"}, {33, "[STREAMING_WORD]"}};
  Json vocab;
  for (int64_t i = 0; i < vocabulary - kSpecial; ++i) {
    const std::string piece = i < 256 ? std::string(1, static_cast<char>(i)) : fmt::format(" w{}", i - 256);
    vocab.Append(Json::MakeObject({{"rank", i}, {"token_bytes", base::EncodeBase64(piece)}, {"token_str", nullptr}}));
  }
  Json specials;
  for (int64_t i = 0; i < kSpecial; ++i) {
    const auto found = named.find(i);
    const std::string name = found != named.end() ? found->second : fmt::format("<SPECIAL_{}>", i);
    specials.Append(Json::MakeObject({{"rank", i}, {"token_str", name}, {"is_control", true}}));
  }
  return Json::MakeObject({{"config", Json::MakeObject({{"pattern", "\\s+"},
                                                        {"num_vocab_tokens", vocabulary - kSpecial},
                                                        {"default_vocab_size", vocabulary},
                                                        {"default_num_special_tokens", kSpecial},
                                                        {"version", "v13"}})},
                           {"vocab", std::move(vocab)},
                           {"special_tokens", std::move(specials)},
                           {"audio", Json::MakeObject({{"sampling_rate", 16000},
                                                       {"frame_rate", 12.5},
                                                       {"transcription_delay_ms", 480.0},
                                                       {"streaming_n_left_pad_tokens", 32},
                                                       {"transcription_format", "streaming"}})}})
      .Dump();
}

std::string FileName(const Options& options, size_t shard) {
  if (!options.hugging_face) return "consolidated.safetensors";
  if (options.shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, options.shards);
}

struct Plan {
  std::vector<std::unique_ptr<SafetensorsWriter>> writers;  // one per shard
  std::vector<Job> jobs;
};

Result<Plan> MakePlan(const Options& options, const ModelConfig& config, Tables* tables) {
  const auto shards = static_cast<size_t>(options.shards);
  std::vector<std::vector<TensorPlan>> tensors(shards);
  std::vector<std::vector<Job>> jobs(shards);
  Json map = Json::MakeObject();
  std::vector<TensorSpec> specs = ExpectedTensors(config);
  specs.pop_back();  // the optional head
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorSpec& spec = specs[i];
    const size_t shard = i * shards / specs.size();
    const auto [mean, deviation] = Distribution(spec);
    Job job;
    job.index = tensors[shard].size();
    job.seed = Hash(spec.name, options.seed);
    job.table = &tables->Get(mean, deviation);
    job.rows = spec.shape[0];
    for (size_t d = 1; d < spec.shape.size(); ++d) job.cols *= spec.shape[d];
    if (options.hugging_face) job.head_dim = HeadDimOf(config, spec.name);
    const std::string name = options.hugging_face ? HuggingFaceName(spec.name, options.prefix) : spec.name;
    map[name] = FileName(options, shard);
    tensors[shard].push_back({name, quant::DType::kBF16, spec.shape});
    jobs[shard].push_back(job);
  }
  if (shards > 1) {
    WriteText(options.folder + "/model.safetensors.index.json", Json::MakeObject({{"weight_map", map}}).Dump(2));
  }
  WriterOptions writer_options;
  writer_options.metadata = {{"format", "pt"}};
  writer_options.sync = false;
  Plan plan;
  for (size_t shard = 0; shard < shards; ++shard) {
    const std::string path = options.folder + "/" + FileName(options, shard);
    VOXRT_ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::Create(path, tensors[shard], writer_options));
    for (Job& job : jobs[shard]) {
      job.writer = writer.get();
      plan.jobs.push_back(job);
    }
    plan.writers.push_back(std::move(writer));
  }
  return plan;
}

Status Make(const Options& options) {
  const ModelConfig config = ConfigOf(options.size);
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) return Status(StatusCode::kIo, fmt::format("cannot create {}: {}", options.folder, error.message()));
  if (options.hugging_face) {
    WriteText(options.folder + "/config.json", WriteHuggingFaceConfig(config));
  } else {
    WriteText(options.folder + "/params.json", WriteMistralParams(config));
  }
  WriteText(options.folder + "/tekken.json", TekkenJson(config.vocab_size));
  Tables tables;
  VOXRT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(options, config, &tables));
  VOXRT_RETURN_IF_ERROR(FillAll(plan.jobs));
  int64_t bytes = 0;
  for (const auto& writer : plan.writers) {
    VOXRT_RETURN_IF_ERROR(writer->Finish());
    bytes += writer->file_bytes();
  }
  fmt::print(stderr, "{}: {} tensors, {} bytes\n", options.folder, plan.jobs.size(), bytes);
  return Status();
}

bool ParseOption(std::string_view name, const std::string& value, Options* options) {
  if (name == "--size" && (value == "full" || value == "demo" || value == "tiny")) {
    options->size = value;
  } else if (name == "--layout" && (value == "mistral" || value == "hf")) {
    options->hugging_face = value == "hf";
  } else if (name == "--hf-prefix" && (value == "old" || value == "new" || value == "doubled")) {
    options->prefix = value == "old" ? PrefixStyle::kOld : value == "new" ? PrefixStyle::kNew : PrefixStyle::kDoubled;
  } else if (name == "--shards" && std::atoi(value.c_str()) >= 1) {
    options->shards = std::atoi(value.c_str());
  } else if (name == "--seed") {
    options->seed = std::strtoull(value.c_str(), nullptr, 10);
  } else {
    return false;
  }
  return true;
}

bool ParseArguments(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with("--") && options->folder.empty()) {
      options->folder = argument;
    } else if (i + 1 == argc || !ParseOption(argument, argv[++i], options)) {
      return false;
    }
  }
  return !options->folder.empty() && (options->hugging_face || options->shards == 1);
}

}  // namespace
}  // namespace voxrt::weights

int main(int argc, char** argv) {
  voxrt::weights::Options options;
  if (!voxrt::weights::ParseArguments(argc, argv, &options)) {
    std::fputs(voxrt::weights::kUsage, stderr);
    return 2;
  }
  const voxrt::Status status = voxrt::weights::Make(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "make_checkpoint: {}\n", status.message());
  return 1;
}
