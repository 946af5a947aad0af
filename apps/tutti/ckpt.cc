// tutti ckpt COMMAND: looks into checkpoints and makes others of them, in one process, without the job that wrote them.
// The table below is the list of commands.
#include "apps/tutti/ckpt/commands.h"
#include "apps/tutti/command.h"

namespace tutti::cli {
namespace {

constexpr Command kCommands[] = {
    {"ls", "list the tensors: names, types, shapes, where they lie", ckpt_ls_command},
    {"show", "print what it says besides: step, schedule, optimizer; or one tensor", ckpt_show_command},
    {"verify", "look at every byte, and name file, tensor and byte of what is wrong", ckpt_verify_command},
    {"diff", "say which tensors differ between two, and where most", ckpt_diff_command},
    {"extract", "write some tensors, a box of one, or what one rank has, to a file", ckpt_extract_command},
    {"reshard", "deal it out to another number of ranks", ckpt_reshard_command},
    {"merge", "write the weights alone as safetensors with an index like Hugging Face's", ckpt_merge_command},
    {"prune", "remove the older ones of a folder", ckpt_prune_command},
    {"import", "make one of safetensors or of what torch.save() wrote", ckpt_import_command},
    {"gpt2", "turn a GPT-2 of Hugging Face into one of pretrain_gpt, or back", ckpt_gpt2_command},
};

constexpr const char* kExamples =
    "One process does it, wherever the checkpoint comes from:\na folder of checkpoints (the newest), one of them, a "
    "safetensors file, or a folder of those. For example:\n"
    "  tutti ckpt ls runs/a\n"
    "  tutti ckpt verify runs/a/step-0000200";

}  // namespace

int ckpt_command(std::vector<std::string> arguments) {
  return run_family({"tutti ckpt", "looks into checkpoints and makes others of them", kExamples, kCommands},
                    std::move(arguments));
}

}  // namespace tutti::cli
