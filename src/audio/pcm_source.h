// Sources that need no library: WAV files and raw PCM, from anything that gives bytes.
#pragma once

#include <memory>

#include "audio/byte_stream.h"
#include "audio/source.h"

namespace voxrt::audio {

// Reads the header, so that info() is complete. When the file is a WAV whose codec this reader does not decode,
// *foreign_codec becomes true and `stream` still stands at its beginning.
Result<std::unique_ptr<AudioSource>> OpenWav(std::unique_ptr<ByteStream>& stream, const SourceOptions& options,
                                             bool* foreign_codec);

// options.raw must be set.
Result<std::unique_ptr<AudioSource>> OpenRaw(std::unique_ptr<ByteStream> stream, const SourceOptions& options);

}  // namespace voxrt::audio
