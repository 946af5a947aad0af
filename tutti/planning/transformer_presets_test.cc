// A preset has as many parameters as the published weights have.
#include "tutti/planning/transformer_presets.h"

#include <gmock/gmock.h>

#include <map>
#include <string>

namespace tutti {
namespace {

TEST(TransformerPresets, HaveThePublishedNumberOfParameters) {
  const std::map<std::string_view, std::int64_t> published = {
      {"gpt2", 124'439'808},         {"gpt2-medium", 354'823'168},   {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},    {"gpt3-175b", 174'604'259'328}, {"llama3-405b", 405'853'388'800},
      {"llama2-7b", 6'738'415'616},  {"llama3-8b", 8'030'261'248},   {"llama3-70b", 70'553'706'496},
      {"mistral-7b", 7'241'732'096}, {"qwen2.5-0.5b", 494'032'768},  {"qwen2.5-7b", 7'615'616'512}};
  EXPECT_EQ(transformer_preset_names().size(), published.size());
  for (const auto& [name, parameters] : published) {
    const TransformerConfig config = transformer_preset(name).or_throw();
    EXPECT_EQ(parameters_of(config), parameters) << name;
    EXPECT_TRUE(check(config).ok()) << name;
  }
}

TEST(TransformerPresets, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto unknown = transformer_preset("gpt5");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().detail, "there is no preset of a transformer named gpt5");
  EXPECT_THAT(unknown.error().hint, ::testing::HasSubstr("gpt2-xl, gpt3-175b, "));
}

}  // namespace
}  // namespace tutti
