// Multipart bodies and their headers: the same bytes in two different cuts must give the same parts, and what comes out
// of the form is a request or an error that names something.
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/http/multipart.h"
#include "server/http/transcription_form.h"
#include "server/http/uri.h"

namespace {

using namespace voxrt::server;  // NOLINT(google-build-using-namespace): one small program

struct Outcome {
  std::string parts;
  bool ok = false;
};

class Recorder : public MultipartSink {
 public:
  Recorder(TranscriptionForm* form, Outcome* outcome) : form_(form), outcome_(outcome) {}
  voxrt::Status OnPart(const MultipartHeader& header) override {
    outcome_->parts += "[" + header.name + "|" + header.filename.value_or("") + "]";
    return form_->OnPart(header);
  }
  voxrt::Status OnData(std::string_view bytes) override {
    outcome_->parts += bytes;
    return form_->OnData(bytes);
  }
  voxrt::Status OnPartEnd() override {
    outcome_->parts += "]";
    return form_->OnPartEnd();
  }

 private:
  TranscriptionForm* form_;
  Outcome* outcome_;
};

Outcome Parse(const std::string& boundary, std::string_view body, size_t step) {
  Outcome outcome;
  TranscriptionForm form([](std::string_view) { return voxrt::Status(); });
  Recorder recorder(&form, &outcome);
  MultipartParser parser(boundary, &recorder);
  voxrt::Status status;
  for (size_t i = 0; i < body.size() && status.ok(); i += step) status = parser.Push(body.substr(i, step));
  if (status.ok()) status = parser.Finish();
  outcome.ok = status.ok();
  if (!outcome.ok) return outcome;
  SessionConfig config;
  config.models = {"demo"};
  const auto result = form.Check(config, "");
  if (const auto* error = std::get_if<HttpError>(&result)) VOXRT_CHECK(!error->message.empty());
  return outcome;
}

}  // namespace

// First byte: cut. Up to the first newline: a content type; the rest: the body. "XX" stands in where the content type
// names no boundary.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t end = input.find('\n');
  const std::string_view type = input.substr(0, end);
  const std::string_view body = end == std::string_view::npos ? std::string_view() : input.substr(end + 1);
  (void)ParseUri(type);
  const std::string boundary = MultipartBoundary(type).value_or("XX");
  const Outcome whole = Parse(boundary, body, size + 1);
  const Outcome cut = Parse(boundary, body, static_cast<size_t>(data[0] % 17) + 1);
  VOXRT_CHECK(whole.ok == cut.ok);
  if (whole.ok) VOXRT_CHECK(whole.parts == cut.parts);
  return 0;
}
