// What the gpu_* programs share: their command line, opening the device with a synthetic model, ageing its sessions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/device.h"
#include "gpu_model.h"

namespace voxrt::bench {

double NowMs();
// Value below which `share` (0..1) of the values lie; 0 where there are none.
double Percentile(std::vector<double> values, double share);

// --name VALUE and --name, asked for by name; what nobody asked for is an error. (Not CLI11: on a machine with only the
// CUDA toolkit these programs build with {fmt} alone.)
class Arguments {
 public:
  // `flags`: the names that take no value.
  Arguments(int argc, char** argv, const std::vector<std::string>& flags);

  bool Flag(const std::string& name);
  std::string Text(const std::string& name, const std::string& otherwise);
  std::string OneOf(const std::string& name, const std::vector<std::string>& values);  // without it the first
  double Number(const std::string& name, double otherwise);
  std::vector<std::string> List(const std::string& name, const std::string& otherwise);  // a,b,c
  std::vector<int> Numbers(const std::string& name, const std::string& otherwise);
  // After all questions. False: the program returns *code now; the usage was printed, because --help asked for it or
  // because an argument is unknown or its value is none of those it can have.
  bool Done(const char* usage, int* code);

 private:
  void Refuse(const std::string& name, const std::string& value);

  std::map<std::string, std::string> given_;
  std::vector<std::string> wrong_;
};

// The model of --tiny: runs in an instant on any backend.
void MakeTiny(SyntheticConfig* config);

// False where there is no such device, after a line that says "skipped" and why.
bool OpenDevice(const std::string& backend, std::unique_ptr<backend::Device>* device);

struct OpenModel {
  std::unique_ptr<backend::Device> device;  // outlives the model
  std::unique_ptr<SyntheticModel> model;
};
// Prints a line with the device and the model's bytes. False: the program returns *code now, 0 where there is no such
// device.
bool Open(const std::string& backend, const SyntheticConfig& config, OpenModel* opened, int* code);

// Prints the failure; returns whether there was none.
bool Good(const Status& status);

// Session 0 lives through the ticks [from, to), whose rows it did not have yet; then the other of the first `sessions`
// continue as it.
Status Age(SyntheticModel& model, int64_t from, int64_t to, int sessions);

}  // namespace voxrt::bench
