#include "tutti/doctor/examination.h"

#include <gtest/gtest.h>

namespace tutti::doctor {
namespace {

TEST(DoctorMessages, SurviveBeingWritten) {
  Message message;
  message.host = "a", message.version = "1", message.ranks = 4;
  message.target.stream = {.host = "10.0.0.1", .port = 1};
  message.target.datagrams = {.host = "fd77::1", .port = 2};
  message.findings = {{Grade::kWarn, "x", "y", "z"}};
  message.gpus = {{.name = "NVIDIA H200", .nvlink = {1}, .numa = 1}};
  const auto read = parse_doctor_message(encode(message));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(encode(*read), encode(message));
  EXPECT_EQ(read->target.datagrams.host, "fd77::1");
  EXPECT_EQ(read->gpus, message.gpus);
  for (const char* broken : {"", "[]", "{}", R"({"host":"a"})"})
    EXPECT_EQ(parse_doctor_message(broken).status().error().code, Code::kCorrupt) << broken;
}

}  // namespace
}  // namespace tutti::doctor
