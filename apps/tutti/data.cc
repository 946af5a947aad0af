// tutti data COMMAND: datasets for the trainers. The table below is the list of commands.
#include "apps/tutti/command.h"
#include "apps/tutti/data_commands.h"

namespace tutti::cli {
namespace in_data {
namespace {

constexpr Command kCommands[] = {
    {"criteo", "pack Criteo's raw text, Kaggle or Terabyte, into one file", data_criteo_command},
    {"clicks", "make clicks like Criteo's whose best AUC is known", data_clicks_command},
    {"trace", "profile a trace of accesses to a table, for synthetic clicks", data_trace_command},
    {"text", "make text whose least possible loss is known", data_text_command},
    {"tokenize", "convert text to tokens for pretrain_gpt and Megatron-LM", data_tokenize_command},
    {"bpe", "learn a byte-pair encoding from text: vocab.json and merges.txt", data_bpe_command},
};

constexpr const char* kExamples =
    "For example:\n"
    "  tutti data clicks --output clicks\n"
    "  tutti data criteo train.txt --output kaggle";

}  // namespace
}  // namespace in_data

int data_command(std::vector<std::string> arguments) {
  using namespace in_data;
  return run_family({"tutti data", "makes datasets for the trainers", kExamples, kCommands}, std::move(arguments));
}

}  // namespace tutti::cli
