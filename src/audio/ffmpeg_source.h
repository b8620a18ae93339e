// Every container and codec that FFmpeg's libraries decode, behind AudioSource. The libraries read only the bytes of
// the stream they are handed: no protocols, no other files, and only demuxers from a fixed list of audio and video
// containers.
#pragma once

#include <memory>

#include "audio/byte_stream.h"
#include "audio/source.h"

namespace voxrt::audio {

// Whether the libraries are compiled in.
bool FfmpegBuiltIn();

// Opens the stream and decodes its first audio, so that info() is complete and unreadable input fails here.
Result<std::unique_ptr<AudioSource>> OpenFfmpeg(std::unique_ptr<ByteStream> stream, const SourceOptions& options);

}  // namespace voxrt::audio
