// Choosing a device, and what happens on a machine without one.
#include "audio/capture.h"

#include <gtest/gtest.h>

namespace voxrt::audio {
namespace {

const std::vector<CaptureDevice>& Devices() {
  static const std::vector<CaptureDevice> devices = {
      {0, "HDA Intel PCH: ALC257 Analog (hw:0,0)", "ALSA", 2, 44100, false},
      {3, "USB Microphone: Audio (hw:1,0)", "ALSA", 1, 48000, false},
      {5, "default", "ALSA", 32, 44100, true},
      {7, "USB Camera: Audio 3 (hw:2,0)", "ALSA", 1, 32000, false},
  };
  return devices;
}

int Chosen(const std::string& wanted) {
  const auto device = ChooseCaptureDevice(Devices(), wanted);
  return device.ok() ? device->index : -1;
}

TEST(ChooseCaptureDevice, TakesIndexNamePartOrDefault) {
  EXPECT_EQ(Chosen(""), 5);
  EXPECT_EQ(Chosen("3"), 3);
  EXPECT_EQ(Chosen("usb micro"), 3);
  EXPECT_EQ(Chosen("CAMERA"), 7);
  EXPECT_EQ(Chosen("default"), 5);
  std::vector<CaptureDevice> no_default = Devices();
  no_default[2].is_default = false;
  EXPECT_EQ(ChooseCaptureDevice(no_default, "")->index, 0);
}

TEST(ChooseCaptureDevice, SaysWhatThereIs) {
  const auto missing = ChooseCaptureDevice(Devices(), "tape recorder");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("3 USB Microphone"), std::string::npos);
  const auto ambiguous = ChooseCaptureDevice(Devices(), "usb");
  ASSERT_FALSE(ambiguous.ok());
  EXPECT_EQ(ambiguous.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(ambiguous.status().message().find("7 USB Camera"), std::string::npos);
  EXPECT_EQ(ambiguous.status().message().find("HDA"), std::string::npos);
  EXPECT_FALSE(ChooseCaptureDevice(Devices(), "4").ok()) << "index 4 has no input";
  const auto none = ChooseCaptureDevice({}, "");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kUnavailable);
}

#ifdef VOXRT_HAVE_PORTAUDIO

TEST(Capture, WithoutADeviceThereIsOneLineAndNoNoise) {
  testing::internal::CaptureStderr();
  const auto devices = ListCaptureDevices();
  const bool none = !devices.ok() || devices->empty();
  const auto capture =
      none ? Capture::Open({}) : Result<std::unique_ptr<Capture>>(Status(StatusCode::kCancelled, "not tried"));
  const std::string noise = testing::internal::GetCapturedStderr();
  EXPECT_EQ(noise, "");
  if (!none) GTEST_SKIP() << "this machine has a microphone";
  ASSERT_FALSE(capture.ok());
  EXPECT_EQ(capture.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(capture.status().message().find('\n'), std::string::npos);
}

#else

TEST(Capture, ABuildWithoutPortAudioSaysSo) {
  EXPECT_EQ(ListCaptureDevices().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Capture::Open({}).status().code(), StatusCode::kUnavailable);
  EXPECT_NE(Capture::Open({}).status().message().find("PortAudio"), std::string::npos);
}

#endif

}  // namespace
}  // namespace voxrt::audio
