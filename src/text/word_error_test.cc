#include "text/word_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace voxrt::text {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

int Errors(std::string_view reference, std::string_view heard) {
  return WordErrors(NormalisedWords(reference), NormalisedWords(heard));
}

TEST(WordErrorTest, PunctuationAndCaseDoNotCount) {
  EXPECT_THAT(NormalisedWords("  Don't stop, No. 5-a!\n"), ElementsAre("don't", "stop", "no", "5a"));
  EXPECT_THAT(NormalisedWords(" - ... "), IsEmpty());
  EXPECT_EQ(Errors("It's here.", "it's HERE"), 0);
}

TEST(WordErrorTest, CountsSubstitutionsInsertionsAndLosses) {
  EXPECT_EQ(Errors("a b c d", "a x c d"), 1);
  EXPECT_EQ(Errors("a b c d", "a c d"), 1);
  EXPECT_EQ(Errors("a b c d", "a b b c d"), 1);
  EXPECT_EQ(Errors("a b c d", ""), 4);
  EXPECT_EQ(Errors("", "a b"), 2);
  EXPECT_EQ(Errors("a b c", "b c a"), 2);
}

}  // namespace
}  // namespace voxrt::text
