#include "hub/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace voxrt::hub {
namespace {

using ::testing::HasSubstr;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

std::string Listing(const std::string& siblings) {
  return std::string(R"({"sha":")") + kCommit + R"(","siblings":[)" + siblings + "]}";
}

TEST(ListingTest, ReadsSizesAndHashesOfLfsAndPlainFiles) {
  const std::string sha256(64, 'a');
  const std::string blob(40, 'b');
  auto listing = ParseRepoListing(Listing(R"({"rfilename":"w.safetensors","size":5,"blobId":")" + blob +
                                          R"(","lfs":{"size":7,"sha256":")" + sha256 +
                                          R"("}},{"rfilename":"a/b.json","size":3,"blobId":")" + blob + R"("})"));
  ASSERT_TRUE(listing.ok()) << listing.status().message();
  EXPECT_EQ(listing->commit, kCommit);
  ASSERT_EQ(listing->files.size(), 2u);
  EXPECT_EQ(listing->files[0].size, 7);
  EXPECT_EQ(listing->files[0].sha256, sha256);
  EXPECT_EQ(listing->files[0].git_sha1, "") << "names the pointer, not the contents";
  EXPECT_EQ(listing->files[1].git_sha1, blob);
}

TEST(ListingTest, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"../x", "/x", "a/../x", "a//x", "", "a\\\\x", "C:x", "a/.", "x\\u0001"}) {
    auto listing = ParseRepoListing(Listing(std::string(R"({"rfilename":")") + name + R"("})"));
    ASSERT_FALSE(listing.ok()) << name;
    EXPECT_THAT(listing.status().message(), HasSubstr("could leave")) << name;
  }
}

TEST(ListingTest, RefusesWhatIsNoListing) {
  for (const char* text : {"", "<html>", "[]", "{}", R"({"sha":"main","siblings":[]})",
                           R"({"sha":"0123456789abcdef0123456789abcdef01234567"})"}) {
    EXPECT_FALSE(ParseRepoListing(text).ok()) << text;
  }
  EXPECT_FALSE(ParseRepoListing(Listing(R"({"rfilename":"a"},{"rfilename":"a"})")).ok());
}

TEST(ListingTest, PrefersMistralsLayout) {
  RepoListing listing;
  for (const char* path : {"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "model.safetensors.index.json", "tekken.json", "processor_config.json", "README.md"}) {
    listing.files.push_back({path, -1, "", ""});
  }
  auto hf = SelectCheckpointFiles(listing);
  ASSERT_TRUE(hf.ok());
  EXPECT_EQ(hf->size(), 6u);
  listing.files.push_back({"params.json", -1, "", ""});
  listing.files.push_back({"consolidated.safetensors", -1, "", ""});
  auto mistral = SelectCheckpointFiles(listing);
  ASSERT_TRUE(mistral.ok());
  EXPECT_EQ(mistral->size(), 3u);
  auto nothing = SelectCheckpointFiles({});
  ASSERT_FALSE(nothing.ok());
  EXPECT_THAT(nothing.status().message(), HasSubstr("params.json"));
}

TEST(ListingTest, ContentRange) {
  auto range = ParseContentRange("bytes 5-9/100");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->first, 5);
  EXPECT_EQ(range->last, 9);
  EXPECT_EQ(range->total, 100);
  for (const char* bad : {"", "bytes", "bytes 5-9", "bytes 5-9/*", "bytes 9-5/100", "bytes 5-100/100", "bytes -5-9/100",
                          "bytes 5-9/100x", "bytes 99999999999999999999-9/100", "items 5-9/100"}) {
    EXPECT_FALSE(ParseContentRange(bad).has_value()) << bad;
  }
}

TEST(ListingTest, EtagsThatAreHashesAreUsed) {
  RemoteFile file;
  ApplyEtag("\"" + std::string(64, 'c') + "\"", &file);
  EXPECT_EQ(file.sha256, std::string(64, 'c'));
  ApplyEtag("W/\"" + std::string(40, 'd') + "\"", &file);
  EXPECT_EQ(file.git_sha1, std::string(40, 'd'));
  RemoteFile other;
  ApplyEtag("\"5f-abc\"", &other);
  EXPECT_EQ(other.sha256 + other.git_sha1, "");
}

TEST(ListingTest, UrlsAreEscaped) {
  EXPECT_EQ(EscapeForUrl("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_EQ(EscapeForUrl("a b/c?d", true), "a%20b/c%3Fd");
}

}  // namespace
}  // namespace voxrt::hub
