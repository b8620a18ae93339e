// The compiled-in backends: an explicit array (static initialisers get lost in static linking). Defined in backend/all.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/device.h"
#include "base/status.h"

namespace voxrt::backend {

struct BackendEntry {
  std::string_view name;         // "ref", "cpu", "cuda"
  std::string_view description;  // one line for --help
  Result<std::unique_ptr<Device>> (*open)(const DeviceOptions& options);
};

std::span<const BackendEntry> CompiledBackends();

// kInvalidArgument naming the compiled-in backends where `name` is unknown.
Result<std::unique_ptr<Device>> OpenDevice(std::string_view name, const DeviceOptions& options);

}  // namespace voxrt::backend
