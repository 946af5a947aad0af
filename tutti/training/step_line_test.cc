#include "tutti/training/step_line.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace tutti {
namespace {

using testing::HasSubstr;

std::string written(void (*act)(std::FILE*)) {
  std::FILE* out = std::tmpfile();
  act(out);
  const auto size = std::size_t(std::ftell(out));
  std::rewind(out);
  std::string all(size, '\0');
  EXPECT_EQ(std::fread(all.data(), 1, size, out), size);
  std::fclose(out);
  return all;
}

TEST(StepLine, Text) {
  const TrainingStep since{.loss = 0.51234, .lr = 0.05, .samples = 1280, .seconds = 0.5, .data = 0.01, .exposed = 0.05};
  EXPECT_EQ(step_line_text(120, 468, since, 10),
            "step 120/468  loss 0.5123  lr 0.05  2560 samples/s  data 2.0%  comm 10.0%  ETA 17.4 s");
}

TEST(StepLine, FilesGetPlainLines) {
  const auto text = written([](std::FILE* out) {
    StepLine line(out, 3, 0);
    for (int i = 0; i < 3; ++i) line.record({.loss = 1.0 + i, .samples = 64, .seconds = 0.1});
  });
  EXPECT_THAT(text, testing::StartsWith("step 1/3  loss 1.0000"));
  EXPECT_THAT(text, HasSubstr("\nstep 3/3  loss 3.0000"));
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(StepLine, TheLastStepsAreShownAtTheEnd) {
  const auto text = written([](std::FILE* out) {
    StepLine line(out, 2, 3600);
    for (int i = 0; i < 2; ++i) line.record({.samples = 64, .seconds = 0.1});
  });
  EXPECT_THAT(text, testing::StartsWith("step 2/2"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST(StepLine, NegativeMeansSilence) {
  EXPECT_EQ(written([](std::FILE* out) { StepLine(out, 1, -1).record({.seconds = 1}); }), "");
}

}  // namespace
}  // namespace tutti
