// tutti ckpt COMMAND: looks into checkpoints and makes others of them, in one process, without the job that wrote them.
// The table below is the list of commands.
#include "apps/tutti/ckpt/commands.h"
#include "apps/tutti/command.h"

namespace tutti::cli {
namespace in_ckpt {
namespace {

constexpr Command kCommands[] = {
    {"ls", "list the tensors: names, types, shapes, files", ckpt_ls_command},
    {"show", "print step, schedule and optimizer values, or one tensor", ckpt_show_command},
    {"verify", "check every byte, and name file, tensor and byte of each error", ckpt_verify_command},
    {"diff", "print which tensors differ between two checkpoints, and where most", ckpt_diff_command},
    {"extract", "write some tensors, a box of one, or one rank's shard to a file", ckpt_extract_command},
    {"reshard", "reshard for another number of ranks", ckpt_reshard_command},
    {"merge", "write the weights alone as safetensors with an index like Hugging Face's", ckpt_merge_command},
    {"prune", "remove older checkpoints of a folder", ckpt_prune_command},
    {"import", "make a checkpoint from safetensors or from files of torch.save()", ckpt_import_command},
    {"gpt2", "convert a GPT-2 of Hugging Face to a checkpoint of pretrain_gpt, or back", ckpt_gpt2_command},
};

constexpr const char* kExamples =
    "Each command is one process, without the job that wrote the checkpoint. A checkpoint is a folder of checkpoints "
    "(which means the newest), one of them, a safetensors file, or a folder of those. For example:\n"
    "  tutti ckpt ls runs/a\n"
    "  tutti ckpt verify runs/a/step-0000200";

}  // namespace
}  // namespace in_ckpt

int ckpt_command(std::vector<std::string> arguments) {
  using namespace in_ckpt;
  return run_family({"tutti ckpt", "inspects, verifies and converts checkpoints", kExamples, kCommands},
                    std::move(arguments));
}

}  // namespace tutti::cli
