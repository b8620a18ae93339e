#include "server/http/multipart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace voxrt::server {
namespace {

using ::testing::HasSubstr;

// Writes down what came: "name|filename|type=data;".
class Recorder : public MultipartSink {
 public:
  Status OnPart(const MultipartHeader& header) override {
    log += header.name + "|" + header.filename.value_or("-") + "|" + header.content_type + "=";
    return {};
  }
  Status OnData(std::string_view bytes) override {
    log += bytes;
    return {};
  }
  Status OnPartEnd() override {
    log += ";";
    return {};
  }
  std::string log;
};

std::string Parse(std::string_view body, size_t step = 100000, Status* status = nullptr, const char* boundary = "XX") {
  Recorder recorder;
  MultipartParser parser(boundary, &recorder);
  Status last;
  for (size_t i = 0; i < body.size() && last.ok(); i += step) last = parser.Push(body.substr(i, step));
  if (last.ok()) last = parser.Finish();
  if (status != nullptr) *status = last;
  return recorder.log;
}

const std::string kBody =
    "--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ndemo\r\n"
    "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a %22b\xC3\xA9.wav\"\r\nContent-Type: "
    "audio/wav\r\n\r\nab\r\n--X\r\n--XXa\r\ncd\r\n"
    "--XX  \r\ncontent-disposition:form-data;name=empty\r\n\r\n\r\n"
    "--XX--\r\n";
const std::string kLog = "model|-|=demo;file|a %22b\xC3\xA9.wav|audio/wav=ab\r\n--X\r\n--XXa\r\ncd;empty|-|=;";

TEST(Multipart, EveryCutGivesTheSameParts) {
  for (size_t step = 1; step <= kBody.size(); ++step) {
    Status status;
    EXPECT_EQ(Parse(kBody, step, &status), kLog) << step;
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Multipart, PreambleAndEpilogueAreIgnored) {
  Status status;
  EXPECT_EQ(Parse("hello\r\n" + kBody + "bye --XX\r\n", 7, &status), kLog);
  EXPECT_TRUE(status.ok());
}

TEST(Multipart, AnExtraEmptyLineAfterTheEndIsFine) {
  Status status;
  Parse(kBody + "\r\n", 5, &status);
  EXPECT_TRUE(status.ok());
}

TEST(Multipart, ATruncatedBodyIsAnError) {
  for (size_t n = 0; n + 4 < kBody.size(); ++n) {
    Status status;
    Parse(kBody.substr(0, n), 3, &status);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << n;
  }
}

TEST(Multipart, PartsWithoutANameAreAnError) {
  Status status;
  Parse("--XX\r\nContent-Type: text/plain\r\n\r\nx\r\n--XX--", 100, &status);
  EXPECT_THAT(status.message(), HasSubstr("no name"));
  Parse("--XX\r\n\r\nx\r\n--XX--", 100, &status);
  EXPECT_FALSE(status.ok());
}

TEST(Multipart, EndlessHeadersAndPartsAreBounded) {
  Status status;
  Parse("--XX\r\n" + std::string(100000, 'a'), 1000, &status);
  EXPECT_THAT(status.message(), HasSubstr("16 KiB"));
  std::string many;
  for (int i = 0; i < 1200; ++i) many += "--XX\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
  Parse(many, 1000, &status);
  EXPECT_THAT(status.message(), HasSubstr("1000 parts"));
}

TEST(Multipart, AStopFromTheSinkEndsTheParsing) {
  class Full : public Recorder {
    Status OnData(std::string_view) override { return {StatusCode::kResourceExhausted, "full"}; }
  } full;
  MultipartParser parser("XX", &full);
  EXPECT_EQ(parser.Push(kBody).message(), "full");
}

TEST(Multipart, BoundariesAreReadFromTheContentType) {
  EXPECT_EQ(MultipartBoundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(MultipartBoundary("Multipart/Form-Data; charset=x; Boundary=\"a b:c\""), "a b:c");
  EXPECT_EQ(MultipartBoundary("multipart/form-data"), std::nullopt);
  EXPECT_EQ(MultipartBoundary("multipart/form-data; boundary="), std::nullopt);
  EXPECT_EQ(MultipartBoundary("application/json; boundary=abc"), std::nullopt);
  EXPECT_EQ(MultipartBoundary("multipart/form-data; boundary=" + std::string(300, 'a')), std::nullopt);
}

TEST(Multipart, HeaderParameters) {
  const Result<MultipartHeader> header =
      ParsePartHeaders("Content-Disposition: form-data; filename=\"a\\\"b;c.wav\"; name=file");
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header.value().name, "file");
  EXPECT_EQ(header.value().filename, "a\"b;c.wav");
  EXPECT_EQ(ParsePartHeaders("Content-Disposition: form-data; name=\"x\"; filename=\"\"").value().filename, "");
}

}  // namespace
}  // namespace voxrt::server
