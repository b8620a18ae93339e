// Microphone capture through PortAudio: list the devices, open one, read 16 kHz mono samples with a timeout. Built
// without PortAudio every call gives kUnavailable.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "audio/level.h"
#include "base/status.h"

namespace voxrt::audio {

struct CaptureDevice {
  int index = -1;  // what --device takes
  std::string name;
  std::string host_api;  // "ALSA", "JACK", ...
  int channels = 0;      // at most
  double default_rate = 0.0;
  bool is_default = false;
};

struct CaptureOptions {
  std::string device;  // index, or part of a name (any case); empty: the default device
  int target_rate = 16000;
  double buffer_seconds = 10.0;  // held while nobody reads; beyond it samples are dropped and counted
};

// Input devices, possibly none. Messages that the system's audio libraries print while they look are kept off standard
// error: call it while no other thread writes there.
Result<std::vector<CaptureDevice>> ListCaptureDevices();

// The device that `wanted` means: an index, or the only one whose name contains it, or the default for "". Pure.
Result<CaptureDevice> ChooseCaptureDevice(std::span<const CaptureDevice> devices, const std::string& wanted);

class Capture {
 public:
  static Result<std::unique_ptr<Capture>> Open(const CaptureOptions& options);
  virtual ~Capture() = default;

  // Waits up to `timeout` for samples; 0 = none yet, or stopped and all read. An error when the device is gone.
  virtual Result<size_t> Read(std::span<float> samples, std::chrono::milliseconds timeout) = 0;
  // Ends the recording; what was recorded can still be read.
  virtual void Stop() = 0;
  virtual bool stopped() const = 0;

  virtual const CaptureDevice& device() const = 0;
  virtual int device_rate() const = 0;           // what the device records at
  virtual Level TakeLevel() = 0;                 // of the samples read since the last call
  virtual uint64_t dropped_samples() const = 0;  // at the device's rate, since Open
};

}  // namespace voxrt::audio
