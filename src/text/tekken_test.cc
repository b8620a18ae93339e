#include "text/tekken.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/base64.h"
#include "base/json.h"
#include "support/root.h"
#include "text/utf8_assembler.h"

namespace voxrt::text {
namespace {

using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::string kAudio = R"("audio":{"streaming_n_left_pad_tokens":7,"transcription_delay_ms":960.0})";
const std::string kConfig = R"("config":{"default_vocab_size":14,"default_num_special_tokens":10,"pattern":"x"})";
const std::string kSpecials =
    R"("special_tokens":[{"rank":3,"token_str":"<s>"},{"rank":4,"token_str":"</s>"},)"
    R"({"rank":9,"token_str":"[STREAMING_PAD]","is_control":true},{"rank":8,"token_str":"[STREAMING_WORD]"}])";

std::string Vocab(int entries) {
  std::string text = "\"vocab\":[";
  for (int i = 0; i < entries; ++i) {
    text += (i == 0 ? "" : ",") + std::string("{\"rank\":") + std::to_string(i) + ",\"token_bytes\":\"" +
            base::EncodeBase64(std::string(1, static_cast<char>('a' + i))) + "\",\"token_str\":null}";
  }
  return text + "]";
}

std::string Join(std::initializer_list<std::string> parts) {
  std::string text = "{";
  for (const std::string& part : parts) text += (text.size() == 1 ? "" : ",") + part;
  return text + "}";
}

std::string ErrorOf(const std::string& text) {
  Result<Tekken> tekken = Tekken::Parse(text);
  EXPECT_FALSE(tekken.ok()) << text;
  if (tekken.ok()) return "";
  EXPECT_EQ(tekken.status().code(), StatusCode::kInvalidModel);
  EXPECT_EQ(tekken.status().message().find('\n'), std::string::npos);
  return tekken.status().message();
}

TEST(Tekken, ReadsTheFilesOfBothBundledCheckpoints) {
  for (const auto& [folder, vocabulary] : {std::pair{"models/demo", 4096}, std::pair{"tests/golden/tiny", 1280}}) {
    Result<Tekken> tekken = Tekken::Parse(ReadFile(test::Root() + "/" + folder + "/tekken.json"));
    ASSERT_TRUE(tekken.ok()) << tekken.status().message();
    EXPECT_EQ(tekken->vocab_size(), vocabulary);
    EXPECT_EQ(tekken->special_count(), 1000);
    EXPECT_EQ(tekken->bos(), 1);
    EXPECT_EQ(tekken->eos(), 2);
    EXPECT_EQ(tekken->pad(), 32);
    EXPECT_EQ(tekken->word(), 33);
    EXPECT_EQ(tekken->left_pad_tokens(), 32);
    EXPECT_EQ(tekken->default_delay_ms(), 480);
    for (int byte = 0; byte < 256; ++byte) {
      EXPECT_EQ(tekken->Bytes(1000 + byte), std::string_view(std::string(1, static_cast<char>(byte))));
    }
  }
}

TEST(Tekken, AnyTokenPairOfASentenceAndAnyControlIdBetweenStaysValidUtf8) {
  const Tekken tekken = *Tekken::Parse(ReadFile(test::Root() + "/models/demo/tekken.json"));
  const std::string sentence = "日本語 नमस्ते 한국어 👩‍👩‍👧";
  const auto id_of = [](char byte) { return 1000 + static_cast<int32_t>(static_cast<unsigned char>(byte)); };
  const auto is_valid = [](const std::string& text) {
    return *base::ParseJson(base::Json(text).Dump())->AsString() == text;
  };
  for (const char a : sentence) {
    for (const char b : sentence) {
      Utf8Assembler assembler;
      EXPECT_TRUE(is_valid(assembler.Push(tekken.Bytes(id_of(a)))));
      EXPECT_TRUE(is_valid(assembler.Push(tekken.Bytes(id_of(b)))));
      EXPECT_TRUE(is_valid(assembler.Finish()));
    }
  }
  for (int32_t control = 0; control < 1000; ++control) {
    Utf8Assembler assembler;
    std::string whole;
    for (const char byte : sentence) {
      whole += assembler.Push(tekken.Bytes(id_of(byte)));
      whole += assembler.Push(tekken.Bytes(control));
    }
    ASSERT_EQ(whole + assembler.Finish(), sentence) << control;
  }
}

TEST(Tekken, IdsAreFoundByNameAndPiecesFollowTheSpecialOnes) {
  Result<Tekken> tekken = Tekken::Parse(Join({kAudio, kConfig, kSpecials, Vocab(3)}));
  ASSERT_TRUE(tekken.ok()) << tekken.status().message();
  EXPECT_EQ(tekken->bos(), 3);
  EXPECT_EQ(tekken->eos(), 4);
  EXPECT_EQ(tekken->pad(), 9);
  EXPECT_EQ(tekken->word(), 8);
  EXPECT_EQ(tekken->left_pad_tokens(), 7);
  EXPECT_EQ(tekken->default_delay_ms(), 960);
  EXPECT_EQ(tekken->Bytes(10), "a");
  EXPECT_EQ(tekken->Bytes(12), "c");
  for (int32_t id : {-1, 0, 9, 13, 1000000}) EXPECT_EQ(tekken->Bytes(id), "") << id;
  EXPECT_TRUE(tekken->IsSpecial(9));
  EXPECT_FALSE(tekken->IsSpecial(10));
}

TEST(Tekken, TheSurplusOfTheVocabularyIsCut) {
  Result<Tekken> tekken = Tekken::Parse(Join({Vocab(9), kConfig, kSpecials, kAudio}));
  ASSERT_TRUE(tekken.ok());
  EXPECT_EQ(tekken->Bytes(13), "d");
  EXPECT_EQ(tekken->Bytes(14), "");
}

TEST(Tekken, AMissingWordMarkerOnlyDisablesIt) {
  const std::string specials =
      R"("special_tokens":[{"rank":1,"token_str":"<s>"},{"rank":2,"token_str":"</s>"},{"rank":3,"token_str":"[STREAMING_PAD]"}])";
  Result<Tekken> tekken = Tekken::Parse(Join({kAudio, kConfig, specials, Vocab(3)}));
  ASSERT_TRUE(tekken.ok());
  EXPECT_FALSE(tekken->word().has_value());
}

TEST(Tekken, AudioDefaultsApplyWhenItsFieldsAreAbsent) {
  for (const char* audio :
       {R"("audio":{})", R"("audio":{"streaming_n_left_pad_tokens":null,"transcription_delay_ms":null})"}) {
    Result<Tekken> tekken = Tekken::Parse(Join({audio, kConfig, kSpecials, Vocab(3)}));
    ASSERT_TRUE(tekken.ok());
    EXPECT_EQ(tekken->left_pad_tokens(), 32);
    EXPECT_EQ(tekken->default_delay_ms(), 480);
  }
}

TEST(Tekken, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("<html>"), HasSubstr("not valid JSON at byte 0"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(ErrorOf(Join({kAudio, kSpecials, Vocab(3)})), HasSubstr("config section is missing"));
  EXPECT_THAT(ErrorOf(Join({kAudio, kConfig, Vocab(3)})), HasSubstr("special_tokens is missing"));
  EXPECT_THAT(ErrorOf(Join({kConfig, kSpecials, Vocab(3)})), HasSubstr("audio section is missing"));
  EXPECT_THAT(ErrorOf(Join({kAudio, kConfig, kSpecials})), HasSubstr("vocab is missing"));
  EXPECT_THAT(
      ErrorOf(Join({kAudio, kConfig, R"("special_tokens":[{"rank":1,"token_str":"<s>"},{"rank":2,"token_str":"</s>"}])",
                    Vocab(3)})),
      HasSubstr("[STREAMING_PAD] is missing"));
  EXPECT_THAT(ErrorOf(Join({kAudio, kConfig, R"("special_tokens":[{"rank":10,"token_str":"<s>"}])", Vocab(3)})),
              HasSubstr("special_tokens.rank is 10, expected an integer from 0 to 9"));
  EXPECT_THAT(
      ErrorOf(Join({kAudio, kConfig, R"("special_tokens":[{"rank":1,"token_str":"<s>"},{"rank":2,"token_str":"<s>"}])",
                    Vocab(3)})),
      HasSubstr("<s> occurs twice"));
  EXPECT_THAT(ErrorOf(Join({kAudio, R"("config":{"default_vocab_size":"x"})", kSpecials, Vocab(3)})),
              HasSubstr("is a string"));
  EXPECT_THAT(ErrorOf(Join({kAudio, R"("config":{"default_vocab_size":10,"default_num_special_tokens":11})", kSpecials,
                            Vocab(3)})),
              HasSubstr("default_num_special_tokens is 11"));
  EXPECT_THAT(ErrorOf(Join({kAudio, kConfig, kSpecials, R"("vocab":[{"rank":1,"token_bytes":"YQ=="}])"})),
              HasSubstr("consecutive ranks"));
  EXPECT_THAT(ErrorOf(Join({kAudio, kConfig, kSpecials, R"("vocab":[{"rank":0,"token_bytes":"?"}])"})),
              HasSubstr("no base64"));
  EXPECT_THAT(ErrorOf(Join({kAudio, kConfig, kSpecials, R"("vocab":[{"rank":0}])"})), HasSubstr("no base64"));
  EXPECT_THAT(ErrorOf(Join({R"("audio":{"transcription_delay_ms":100})", kConfig, kSpecials, Vocab(3)})),
              HasSubstr("multiple of 80"));
  EXPECT_THAT(ErrorOf(Join({R"("audio":{"streaming_n_left_pad_tokens":0})", kConfig, kSpecials, Vocab(3)})),
              HasSubstr("left_pad_tokens is 0"));
}

TEST(Tekken, EveryTruncationIsAnError) {
  const std::string text = Join({kAudio, kConfig, kSpecials, Vocab(3)});
  for (size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(Tekken::Parse(text.substr(0, size)).ok()) << size;
}

}  // namespace
}  // namespace voxrt::text
