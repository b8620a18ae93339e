#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "support/root.h"

namespace voxrt::weights {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> Bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string WithLength(uint64_t length, std::string_view rest) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(length >> (8 * i)));
  return file + std::string(rest);
}

std::string File(std::string_view json, size_t data_bytes) {
  return WithLength(json.size(), json) + std::string(data_bytes, '\1');
}

// Both steps over a whole file.
Status Check(std::string_view file) {
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(Bytes(file));
  if (!header.ok()) return header.status();
  return CheckSafetensorsLayout(*header, static_cast<int64_t>(file.size()));
}

std::string ErrorOf(std::string_view file) {
  const Status status = Check(file);
  EXPECT_EQ(status.code(), StatusCode::kInvalidModel);
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  return status.message();
}

constexpr char kTwo[] = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                        R"("b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";

TEST(Safetensors, ReadsNamesTypesShapesPlacesAndMetadata) {
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(Bytes(File(kTwo, 16)));
  ASSERT_TRUE(header.ok()) << header.status().message();
  ASSERT_EQ(header->entries.size(), 2u);
  const SafetensorsEntry& a = header->entries[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, quant::DType::kBF16);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a.begin, 4);
  EXPECT_EQ(a.end, 16);
  EXPECT_EQ(a.elements(), 6);
  EXPECT_EQ(header->entries[1].elements(), 1);
  EXPECT_EQ(*header->FindMetadata("format"), "pt");
  EXPECT_EQ(header->FindMetadata("x"), nullptr);
  EXPECT_EQ(header->data_offset, static_cast<int64_t>(8 + sizeof(kTwo) - 1));
  EXPECT_TRUE(Check(File(kTwo, 16)).ok());
}

TEST(Safetensors, ReadsTheBundledCheckpoints) {
  for (const char* path : {"models/demo/consolidated.safetensors", "tests/golden/tiny/consolidated.safetensors",
                           "tests/golden/tiny_golden.safetensors"}) {
    std::ifstream stream(test::Root() + "/" + path, std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_TRUE(Check(file).ok()) << path << ": " << Check(file).message();
  }
}

TEST(Safetensors, NamesWhatAFileIsInstead) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 8859448000\n"),
              HasSubstr("Git LFS pointer"));
  EXPECT_THAT(ErrorOf("  \n<!DOCTYPE html><html>Sign in</html>"), HasSubstr("HTML"));
  EXPECT_THAT(ErrorOf("{\"error\":\"Access to model is restricted\"}"), HasSubstr("JSON text"));
  EXPECT_THAT(ErrorOf("GGUF\3aaaaaaaaaaaaaaa"), HasSubstr("GGUF"));
  EXPECT_THAT(ErrorOf("PK\3\4aaaaaaaaaaaaaaa"), HasSubstr("ZIP"));
  EXPECT_THAT(ErrorOf("\x8f\x12\x99\xe0\x41\x07\xc3\x5d"), HasSubstr("download it again"));
  EXPECT_THAT(ErrorOf("abc"), HasSubstr("only 3 bytes"));
}

TEST(Safetensors, AHeaderLengthThatLooksLikeTextIsNoText) {
  for (const char first : {'{', '<', ' '}) {
    const auto length = static_cast<size_t>(static_cast<unsigned char>(first));
    std::string json = R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})";
    json.resize(std::max(length, json.size()), ' ');
    if (length < json.size()) json = R"({})" + std::string(length - 2, ' ');
    EXPECT_TRUE(ParseSafetensorsHeader(Bytes(File(json, 1))).ok()) << first;
  }
}

TEST(Safetensors, LyingHeaderLengthsAreRefused) {
  EXPECT_THAT(ErrorOf(WithLength(uint64_t{1} << 63, kTwo)), HasSubstr("header length of 9223372036854775808"));
  EXPECT_THAT(ErrorOf(WithLength(~uint64_t{0}, kTwo)), HasSubstr("header length"));
  EXPECT_THAT(ErrorOf(WithLength(0, kTwo)), HasSubstr("header length of 0"));
  EXPECT_THAT(ErrorOf(WithLength(sizeof(kTwo) + 5, kTwo)), HasSubstr("cut off inside its header"));
  EXPECT_THAT(ErrorOf(WithLength(sizeof(kTwo) - 5, kTwo)), HasSubstr("not valid JSON"));
}

TEST(Safetensors, EveryTruncationAndAnAppendedByteAreRefused) {
  const std::string file = File(kTwo, 16);
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(Check(std::string_view(file).substr(0, size)).ok()) << size;
  EXPECT_THAT(ErrorOf(std::string_view(file).substr(0, file.size() - 1)), HasSubstr("the file is cut off"));
  EXPECT_THAT(ErrorOf(file + "x"), HasSubstr("1 bytes longer than its header says"));
}

TEST(Safetensors, OverlapsHolesAndDuplicatesAreRefusedByName) {
  EXPECT_THAT(
      ErrorOf(File(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
          7)),
      HasSubstr("tensor \"b\" begins at byte 3 of the data, expected 4: tensors overlap"));
  EXPECT_THAT(
      ErrorOf(File(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})",
          9)),
      HasSubstr("a hole between tensors"));
  EXPECT_THAT(ErrorOf(File(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5)), HasSubstr("a hole"));
  EXPECT_THAT(
      ErrorOf(File(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
          4)),
      HasSubstr("duplicate key \"a\""));
}

TEST(Safetensors, DamagedEntriesAreRefusedByName) {
  const auto error_of = [](std::string_view entry) { return ErrorOf(File("{\"t\":" + std::string(entry) + "}", 4)); };
  EXPECT_THAT(error_of("3"), HasSubstr("tensor \"t\" has no dtype"));
  EXPECT_THAT(error_of(R"({"dtype":"Q9","shape":[1],"data_offsets":[0,4]})"), HasSubstr("unknown dtype \"Q9\""));
  EXPECT_THAT(error_of(R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})"), HasSubstr("no valid shape"));
  EXPECT_THAT(error_of(R"({"dtype":"U8","shape":[-4],"data_offsets":[0,4]})"), HasSubstr("no valid shape"));
  EXPECT_THAT(error_of(R"({"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})"), HasSubstr("no valid shape"));
  EXPECT_THAT(error_of(R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,4]})"),
              HasSubstr("no valid shape"));
  EXPECT_THAT(error_of(R"({"dtype":"U8","shape":[4]})"), HasSubstr("no valid data_offsets"));
  EXPECT_THAT(error_of(R"({"dtype":"U8","shape":[4],"data_offsets":[4,0]})"), HasSubstr("no valid data_offsets"));
  EXPECT_THAT(error_of(R"({"dtype":"U8","shape":[4],"data_offsets":[-4,0]})"), HasSubstr("no valid data_offsets"));
  EXPECT_THAT(error_of(R"({"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551615]})"),
              HasSubstr("no valid data_offsets"));
  EXPECT_THAT(error_of(R"({"dtype":"F32","shape":[4],"data_offsets":[0,4]})"),
              HasSubstr("has 4 bytes of data, its F32 shape needs 16"));
  EXPECT_THAT(error_of(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})"),
              HasSubstr("larger than any file"));
  EXPECT_THAT(error_of(R"({"dtype":"F64","shape":[9223372036854775807],"data_offsets":[0,4]})"),
              HasSubstr("larger than any file"));
  EXPECT_THAT(ErrorOf(File(R"({"__metadata__":{"a":1}})", 0)), HasSubstr("metadata \"a\" is no string"));
  EXPECT_THAT(ErrorOf(File("[1]", 0)), HasSubstr("the header is an array"));
}

TEST(Safetensors, EmptyTensorsAreAllowed) {
  EXPECT_TRUE(
      Check(
          File(
              R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,9],"data_offsets":[4,4]}})",
              4))
          .ok());
}

}  // namespace
}  // namespace voxrt::weights
