// What the FFmpeg source needs around its decoding loop: owners, the limits set on the libraries, their messages, and
// frames to mono. Included only where the libraries are compiled in.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/mem.h>
}

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace voxrt::audio {

// The last error that the libraries logged for one source, for our own message.
struct LastMessage {
  std::array<char, 160> text{};
};

// Settings of the libraries that exist once per process: where their messages go and how much one allocation may take.
void PrepareLibraries();

std::string AvErrorText(int error);

// Whether the demuxer is on our list of self-contained audio and video containers.
bool IsAllowed(const AVInputFormat* format);

// Opens a container: reads from `io` only, reports to `message`. On failure the error code is returned and *context
// stays empty.
struct FormatClose {
  void operator()(AVFormatContext* context) const { avformat_close_input(&context); }
};
int OpenGuarded(const AVInputFormat* input, AVIOContext* io, LastMessage* message,
                std::unique_ptr<AVFormatContext, FormatClose>* context);

struct CodecFree {
  void operator()(AVCodecContext* context) const { avcodec_free_context(&context); }
};
struct AvioFree {
  void operator()(AVIOContext* context) const {
    av_freep(&context->buffer);
    avio_context_free(&context);
  }
};
struct PacketFree {
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
};
struct FrameFree {
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
};

// Appends the frame's samples, channels averaged, cleaned as everywhere. False for a sample type that does not exist in
// audio.
bool AppendFrame(const AVFrame& frame, std::vector<float>* mono);

}  // namespace voxrt::audio
