#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace voxrt::base {
namespace {

using ::testing::HasSubstr;

Json Parsed(std::string_view text) {
  Result<Json> json = ParseJson(text);
  EXPECT_TRUE(json.ok()) << json.status().message();
  return json.ok() ? *json : Json();
}

std::string ErrorOf(std::string_view text, const JsonLimits& limits = {}) {
  Result<Json> json = ParseJson(text, limits);
  EXPECT_FALSE(json.ok()) << text;
  return json.ok() ? "" : json.status().message();
}

TEST(Json, ReadsEveryType) {
  const Json json = Parsed(R"({"n":null,"b":true,"i":-7,"d":1.5,"s":"x","a":[1,[2]],"o":{"k":"v"}})");
  EXPECT_TRUE(json.Find("n")->is_null());
  EXPECT_EQ(json.Find("b")->AsBool(), true);
  EXPECT_EQ(json.Find("i")->AsInt(), -7);
  EXPECT_EQ(json.Find("i")->AsDouble(), -7.0);
  EXPECT_EQ(json.Find("d")->AsDouble(), 1.5);
  EXPECT_FALSE(json.Find("d")->AsInt().has_value());
  EXPECT_EQ(*json.Find("s")->AsString(), "x");
  EXPECT_EQ((*json.Find("a")->AsArray())[1].AsArray()->at(0).AsInt(), 2);
  EXPECT_EQ(*json.Find("o")->Find("k")->AsString(), "v");
  EXPECT_EQ(json.Find("absent"), nullptr);
  EXPECT_EQ(json.Find("s")->Find("not an object"), nullptr);
}

TEST(Json, KeepsTheOrderOfMembers) {
  const Json json = Parsed(R"({"z":1,"a":2,"m":3})");
  EXPECT_EQ(json.Dump(), R"({"z":1,"a":2,"m":3})");
}

TEST(Json, IntegersBeyond64SignedBitsAreNoIntegers) {
  EXPECT_EQ(Parsed("9223372036854775807").AsInt(), std::numeric_limits<int64_t>::max());
  EXPECT_FALSE(Parsed("9223372036854775808").AsInt().has_value());
  EXPECT_FALSE(Parsed("18446744073709551616").AsInt().has_value());
}

TEST(Json, DuplicateKeysAreRefusedWithTheirOffset) {
  EXPECT_EQ(ErrorOf(R"({"a":1,"a":2})"), "not valid JSON at byte 9: duplicate key \"a\"");
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_TRUE(ParseJson(many + "\"x\":0}").ok());
  EXPECT_THAT(ErrorOf(many + "\"k3\":0}"), HasSubstr("duplicate key \"k3\""));
  EXPECT_THAT(ErrorOf(many + "\"k99\":0}"), HasSubstr("duplicate key \"k99\""));
}

TEST(Json, InvalidUtf8IsRefusedWithItsOffsetAndNotRepeated) {
  const std::string message = ErrorOf("{\"a\":\"x\xff\"}");
  EXPECT_THAT(message, HasSubstr("at byte 7"));
  EXPECT_THAT(message, HasSubstr("ill-formed UTF-8"));
  EXPECT_EQ(message.find('\xff'), std::string::npos);
  EXPECT_FALSE(ParseJson("\"\xed\xa0\x80\"").ok());  // a surrogate
  EXPECT_FALSE(ParseJson("\"\xc0\x80\"").ok());      // overlong
  EXPECT_FALSE(ParseJson("\"\\ud83d\"").ok());       // half of an escaped pair
  EXPECT_EQ(*Parsed("\"\\ud83d\\ude00\"").AsString(), "\xF0\x9F\x98\x80");
}

TEST(Json, DamagedTextNamesTheOffset) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("   "), HasSubstr("unexpected end of input"));
  EXPECT_THAT(ErrorOf("{\"a\":"), HasSubstr("at byte 5: unexpected end"));
  EXPECT_THAT(ErrorOf("{} x"), HasSubstr("at byte 3"));
  EXPECT_THAT(ErrorOf("[1,]"), HasSubstr("at byte 3"));
  EXPECT_THAT(ErrorOf("{\"a\" 1}"), HasSubstr("at byte 5"));
  EXPECT_THAT(ErrorOf("nan"), HasSubstr("at byte"));
  EXPECT_THAT(ErrorOf("1e999"), HasSubstr("number overflow"));
  EXPECT_THAT(ErrorOf(std::string_view("[\0]", 3)), HasSubstr("at byte 1"));
}

TEST(Json, LimitsActWhileParsing) {
  EXPECT_THAT(ErrorOf("[[[[1]]]]", {.max_depth = 3}), HasSubstr("nested deeper than 3"));
  EXPECT_TRUE(ParseJson("[[[1]]]", {.max_depth = 3}).ok());
  EXPECT_THAT(ErrorOf("[1,2,3,4]", {.max_values = 4}), HasSubstr("more than 4 values"));
  EXPECT_TRUE(ParseJson("[1,2,3]", {.max_values = 4}).ok());
  EXPECT_THAT(ErrorOf("[1,2,3]", {.max_bytes = 6}), HasSubstr("exceeds the limit of 6"));
  EXPECT_THAT(ErrorOf(std::string(1000000, '[')), HasSubstr("nested deeper"));
}

TEST(Json, StreamsTheElementsOfOneArray) {
  std::vector<int64_t> seen;
  const auto take = [&](size_t index, const Json& value) {
    EXPECT_EQ(index, seen.size());
    seen.push_back(*value.Find("v")->AsInt());
    return Status();
  };
  const std::string text = R"({"a":[1],"list":[{"v":5,"list":[1]},{"v":6}],"b":{"list":[9]}})";
  Result<Json> json = ParseJsonStreaming(text, {}, "list", take);
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(seen, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(json->Dump(), R"({"a":[1],"list":[],"b":{"list":[9]}})");
}

TEST(Json, AStreamingErrorIsReturned) {
  const auto refuse = [](size_t, const Json&) { return Status(StatusCode::kInvalidModel, "no"); };
  EXPECT_EQ(ParseJsonStreaming(R"({"list":[1]})", {}, "list", refuse).status().code(), StatusCode::kInvalidModel);
}

TEST(Json, WritesWhatItReads) {
  for (const char* text : {"null", "true", "-12", "1.5", "1e+300", "\"a\\\"\\\\\\n\\u0001\\u007f\"", "[]", "{}",
                           "[1,[2,{}],\"\"]", "5.0"}) {
    EXPECT_EQ(Parsed(text).Dump(), text);
    EXPECT_EQ(Parsed(Parsed(text).Dump()), Parsed(text));
  }
}

TEST(Json, WritesValidUtf8AndNumbersWhateverItHolds) {
  EXPECT_EQ(Json("a\xff\xe3\x81").Dump(), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(Json(std::nan("")).Dump(), "null");
  EXPECT_EQ(Json(HUGE_VAL).Dump(), "null");
  EXPECT_EQ(Json(0.1).Dump(), "0.1");
  EXPECT_EQ(Json("日本語").Dump(), "\"日本語\"");
}

TEST(Json, BuildsObjectsAndIndents) {
  Json json = Json::MakeObject({{"type", "delta"}, {"n", 3}, {"ok", true}});
  json["list"].Append(1);
  json["list"].Append(Json());
  json["n"] = 4;
  EXPECT_EQ(json.Dump(), R"({"type":"delta","n":4,"ok":true,"list":[1,null]})");
  EXPECT_EQ(Json::MakeObject({{"a", Json::MakeArray({1})}, {"b", Json::MakeObject()}}).Dump(2),
            "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}");
}

TEST(Json, QuotesForMessagesOnOneShortLine) {
  EXPECT_EQ(QuoteForMessage("a\nb"), "\"a\\nb\"");
  const std::string quoted = QuoteForMessage(std::string(119, 'x') + "日本語");
  EXPECT_EQ(quoted, "\"" + std::string(119, 'x') + "...\"");
}

}  // namespace
}  // namespace voxrt::base
