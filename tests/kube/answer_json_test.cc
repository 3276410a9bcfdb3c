#include "kube/answer_json.h"

#include <gtest/gtest.h>

#include <string>

namespace dsj::kube {
namespace {

using Json = nlohmann::json;

const Json kFields = {
    {{"manager", "kubelet"}, {"fieldsV1", {{"f:status", {{"f:phase", Json::object()}}}}}},
    {{"manager", "m"}, {"list", {1, {2, {}}, "managedFields"}}}};

/// A pod-like object that has every kind of value.
Json object(bool with_fields) {
  Json it = {
      {"kind", "Pod"},
      {"metadata", {{"name", "p"}, {"labels", {{"a", "b"}}}, {"uid", "7"}}},
      {"spec",
       {{"empty", {}},
        {"none", Json::array()},
        {"numbers", {1, -2, 2.5, true, false}},
        {"no", nullptr}}},
      {"status", {{"nested", {{{"x", Json::array({1, Json::array({2, {{"y", "\n\u00e9"}}})})}}}}}}};
  if (with_fields) it["metadata"]["managedFields"] = kFields;
  return it;
}

TEST(AnswerJson, AnObjectComesWithoutItsManagedFields) {
  EXPECT_EQ(parse_answer(object(true).dump()), object(false));
  EXPECT_EQ(parse_answer(object(true).dump(2)), object(false));
}

TEST(AnswerJson, SoDoTheItemsOfAList) {
  const Json list = {{"metadata", {{"resourceVersion", "5"}}},
                     {"items", {object(true), object(false), object(true)}}};
  const Json expected = {{"metadata", {{"resourceVersion", "5"}}},
                         {"items", {object(false), object(false), object(false)}}};
  EXPECT_EQ(parse_answer(list.dump()), expected);
}

TEST(AnswerJson, SoDoesTheObjectOfAnEvent) {
  const Json event = {{"type", "ADDED"}, {"object", object(true)}};
  EXPECT_EQ(parse_answer(event.dump()), Json({{"type", "ADDED"}, {"object", object(false)}}));
}

TEST(AnswerJson, MembersOfThatNameElsewhereStay) {
  const Json kept = {{"managedFields", 1},
                     {"data", {{"managedFields", "mine"}}},
                     {"spec",
                      {{"metadata", {{"managedFields", kFields}}},
                       {"items", {{{"metadata", {{"managedFields", kFields}}}}}},
                       {"object", {{"metadata", {{"managedFields", kFields}}}}}}},
                     {"metadata", {{"annotations", {{"managedFields", "mine"}}}}}};
  EXPECT_EQ(parse_answer(kept.dump()), kept);
}

TEST(AnswerJson, WhatIsNoObjectIsReadAsItIs) {
  for (const char* text : {"[]", "[1,[2]]", "\"text\"", "null", "-3", "1e3", "true", "{}"}) {
    EXPECT_EQ(parse_answer(text), Json::parse(text)) << text;
  }
}

TEST(AnswerJson, WhatIsNotJsonIsDiscarded) {
  for (const char* text :
       {"", "{", "{\"metadata\":{\"managedFields\":[}", "{} {}", "nul", "{\"a\":1,}"}) {
    EXPECT_TRUE(parse_answer(text).is_discarded()) << text;
  }
}

TEST(AnswerJson, AMemberThatIsThereTwiceHasTheLastValue) {
  EXPECT_EQ(parse_answer(R"({"a":{"b":1},"a":{"c":2}})"),
            Json::parse(R"({"a":{"b":1},"a":{"c":2}})"));
}

}  // namespace
}  // namespace dsj::kube
