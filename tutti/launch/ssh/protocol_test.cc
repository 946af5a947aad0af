#include "tutti/launch/ssh/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::launch {
namespace {

TEST(SshProtocol, AGreetingSurvivesAndNoiseIsNone) {
  const Greeting greeting{.version = "1.2",
                          .host = "b",
                          .address = "10.0.0.2",
                          .from = "10.0.0.1",
                          .master_port = 4,
                          .store_port = 5,
                          .addresses = {{.interface = "eth0", .host = "10.0.0.2", .prefix = 24},
                                        {.interface = "eth0", .host = "fe80::1", .prefix = 64, .is_link_local = true}}};
  EXPECT_EQ(parse_greeting(encode(greeting)), greeting);
  for (const char* noise :
       {"", "Welcome to b!", "TUTTI-NODE ", "TUTTI-NODE {", "TUTTI-NODE []", "TUTTI-NODE {\"host\": 1}"})
    EXPECT_EQ(parse_greeting(noise), std::nullopt) << noise;
}

TEST(SshProtocol, AnExitSurvivesAndALineOfTheJobIsNone) {
  for (const NodeExit exit : {NodeExit{.code = 255, .joined = true}, NodeExit{.code = 2, .joined = false}})
    EXPECT_EQ(parse_node_exit(encode(exit)), exit);
  for (const char* line : {"", "[0] done", "TUTTI-NODE-END", "TUTTI-NODE-END 0", "TUTTI-NODE-END {}",
                           R"(TUTTI-NODE-END {"code":256,"met":true})", R"(TUTTI-NODE-END {"code":"0","met":true})"})
    EXPECT_EQ(parse_node_exit(line), std::nullopt) << line;
}

TEST(SshProtocol, InstructionsAreOneLineWhateverIsInThem) {
  const Instructions orders{.arguments = {"run", "-n", "2", "sh", "-c", "echo 'a\n\"b\"' $HOME \xc3\xa9"},
                            .folder = "/a b",
                            .variables = {{"TUTTI_SECRET", "s"}}};
  EXPECT_EQ(encode(orders).find('\n'), std::string::npos);
  EXPECT_EQ(parse_instructions(encode(orders)), orders);
  for (const char* wrong : {"", "{}", "[]", R"({"arguments": "run", "folder": "/", "variables": {}})"})
    EXPECT_EQ(parse_instructions(wrong), std::nullopt) << wrong;
}

TEST(SshProtocol, OnlySignalsAreSignals) {
  EXPECT_EQ(parse_signal(encode_signal(15)), 15);
  for (const char* wrong : {"signal 0", "signal 65", "signal x", "kill 9", ""})
    EXPECT_EQ(parse_signal(wrong), std::nullopt);
}

}  // namespace
}  // namespace tutti::launch
