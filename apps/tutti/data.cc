// tutti data COMMAND: datasets for the trainers. The table below is the list of commands.
#include "apps/tutti/command.h"
#include "apps/tutti/data_commands.h"

namespace tutti::cli {
namespace {

constexpr Command kCommands[] = {
    {"criteo", "Criteo's raw text, Kaggle or Terabyte, to a packed file", data_criteo_command},
    {"clicks", "data in the shape of Criteo's that can be learned, and how well at best", data_clicks_command},
    {"trace", "profile a trace of accesses to a table, for synthetic clicks", data_trace_command},
    {"text", "text whose entropy is known: the least loss that a model can reach", data_text_command},
    {"tokenize", "text to tokens, as pretrain_gpt and Megatron-LM read them", data_tokenize_command},
    {"bpe", "learn a byte-pair encoding from text: vocab.json and merges.txt", data_bpe_command},
};

constexpr const char* kExamples =
    "For example:\n"
    "  tutti data clicks --output clicks\n"
    "  tutti data criteo train.txt --output kaggle";

}  // namespace

int data_command(std::vector<std::string> arguments) {
  return run_family({"tutti data", "datasets for the trainers", kExamples, kCommands}, std::move(arguments));
}

}  // namespace tutti::cli
