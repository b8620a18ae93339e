// What an HttpConnection keeps while an upload is received and transcribed.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "server/admission.h"
#include "server/net/http_connection.h"

namespace voxrt::server {

struct HttpConnection::Upload {
  explicit Upload(const std::string& directory, const std::string& boundary,
                  const boost::asio::any_io_executor& executor)
      : file(std::make_shared<UploadFile>(directory)),
        form([this](std::string_view bytes) { return file->Write(bytes); }),
        multipart(boundary, &form),
        keep_alive(executor) {}

  std::shared_ptr<UploadFile> file;
  TranscriptionForm form;
  MultipartParser multipart;
  int64_t received_bytes = 0;
  int64_t progress_bytes = 0;  // at the last look
  bool body_complete = false;
  std::optional<Admission::Lease> lease;
  std::shared_ptr<TranscriptionJob> job;
  Clock::time_point queued;
  Clock::time_point waiting_since;
  bool head_sent = false;
  bool counted_waiting = false;
  asio::steady_timer keep_alive;
};

}  // namespace voxrt::server
