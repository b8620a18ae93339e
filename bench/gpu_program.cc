#include "gpu_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "backend/registry.h"
#include "base/json.h"

namespace voxrt::bench {

double NowMs() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

Arguments::Arguments(int argc, char** argv, const std::vector<std::string>& flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || std::find(flags.begin(), flags.end(), name) != flags.end()) {
      given_[name] = "";
    } else if (i + 1 < argc) {
      given_[name] = argv[++i];
    } else {
      wrong_.push_back(name);
    }
  }
}

bool Arguments::Flag(const std::string& name) { return given_.erase(name) > 0; }

std::string Arguments::Text(const std::string& name, const std::string& otherwise) {
  const auto found = given_.find(name);
  if (found == given_.end()) return otherwise;
  std::string value = found->second;
  given_.erase(found);
  return value;
}

std::string Arguments::OneOf(const std::string& name, const std::vector<std::string>& values) {
  std::string value = Text(name, values.front());
  if (std::find(values.begin(), values.end(), value) == values.end()) Refuse(name, value);
  return value;
}

void Arguments::Refuse(const std::string& name, const std::string& value) {
  wrong_.push_back(fmt::format("{} {}", name, value));
}

double Arguments::Number(const std::string& name, double otherwise) {
  const std::string text = Text(name, "");
  if (text.empty()) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != '\0' || value < 0) Refuse(name, text);
  return value;
}

std::vector<std::string> Arguments::List(const std::string& name, const std::string& otherwise) {
  std::vector<std::string> parts;
  std::stringstream stream(Text(name, otherwise));
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  if (parts.empty()) wrong_.push_back(name);
  return parts;
}

std::vector<int> Arguments::Numbers(const std::string& name, const std::string& otherwise) {
  std::vector<int> values;
  for (const std::string& part : List(name, otherwise)) {
    values.push_back(std::atoi(part.c_str()));
    if (values.back() <= 0) Refuse(name, part);
  }
  return values;
}

bool Arguments::Done(const char* usage, int* code) {
  if (Flag("--help")) {
    std::fputs(usage, stdout);
    *code = 0;
    return false;
  }
  for (const auto& [name, value] : given_) wrong_.push_back(name);
  if (wrong_.empty()) return true;
  std::fprintf(stderr, "cannot use %s\n%s", wrong_.front().c_str(), usage);
  *code = 2;
  return false;
}

void MakeTiny(SyntheticConfig* config) {
  config->encoder = {.dim = 128, .layers = 2, .heads = 4, .kv_heads = 4, .head_dim = 64, .hidden = 256, .window = 24};
  config->decoder = {.dim = 256, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 128, .hidden = 256, .window = 64};
  config->vocab = 512;
}

bool Good(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok();
}

bool OpenDevice(const std::string& backend, std::unique_ptr<backend::Device>* device) {
  auto opened = backend::OpenDevice(backend, {});
  if (opened.ok()) {
    *device = *std::move(opened);
    return true;
  }
  fmt::print("{}\n", base::Json::MakeObject({{"skipped", opened.status().message()}}).Dump());
  return false;
}

bool Open(const std::string& backend, const SyntheticConfig& config, OpenModel* opened, int* code) {
  *code = 0;
  if (!OpenDevice(backend, &opened->device)) return false;
  const double begin = NowMs();
  auto model = SyntheticModel::Create(*opened->device, config);
  if (!Good(model.status())) {
    *code = 1;
    return false;
  }
  opened->model = *std::move(model);
  const SyntheticBytes& bytes = opened->model->bytes();
  fmt::print(
      "{{\"device\": \"{}\", \"load_s\": {:.2f}, \"encoder_MB\": {:.1f}, \"decoder_MB\": {:.1f}, \"head_MB\": "
      "{:.1f}}}\n",
      opened->device->info().description, (NowMs() - begin) / 1000, static_cast<double>(bytes.encoder_weights) / 1e6,
      static_cast<double>(bytes.decoder_weights) / 1e6, static_cast<double>(bytes.head_weights) / 1e6);
  std::fflush(stdout);
  return true;
}

Status Age(SyntheticModel& model, int64_t from, int64_t to, int sessions) {
  std::vector<int32_t> token;
  for (int64_t tick = from; tick < to; ++tick) {
    model.Tick({{0, tick}});
    VOXRT_RETURN_IF_ERROR(model.Tokens(&token));
  }
  for (int slot = 1; slot < sessions; ++slot) {
    VOXRT_RETURN_IF_ERROR(model.state().Reserve(slot, backend::KvId::kEncoder, 4 * to));
    VOXRT_RETURN_IF_ERROR(model.state().Reserve(slot, backend::KvId::kDecoder, to));
    model.stream().CloneState(0, slot, 4 * to, to);
  }
  return model.stream().Sync();
}

}  // namespace voxrt::bench
