#include "apps/options/checkpoint_options.h"

namespace tutti::cli {

OptionGroup checkpoint_options(CheckpointerOptions& target) {
  constexpr const char* kWhere = "say where to save: --save-dir DIR";
  return {"Checkpoints",
          {{"--save-dir", "DIR", "",
            "save checkpoints to this folder, which all nodes share; saves at the end, and when asked to stop",
            text(target.folder)},
           {"--save-dir-per-node", "", "",
            "--save-dir is a different folder on each node, for the files of that node's ranks",
            flag(target.folder_per_node), needs("--save-dir", "", kWhere)},
           {"--save-interval", "N", "0", "save every N steps too; 0: do not", whole(target.interval),
            needs("--save-dir", "", kWhere)},
           {"--keep", "N", "0", "keep at most N checkpoints; 0: keep all", whole(target.keep, 0, 1 << 30),
            needs("--save-dir", "", kWhere)},
           {"--keep-every",
            "N",
            "0",
            "never delete checkpoints whose step is a multiple of N; 0: no exception",
            whole(target.keep_every),
            needs("--keep", "without it all checkpoints stay"),
            {"--save-retain-interval"}},
           {"--resume", "HOW", "auto",
            "auto: resume from the newest valid checkpoint in --save-dir, if there is one; never; or PATH",
            text(target.resume)},
           {"--memory-copy-interval", "N", "0",
            "copy the state every N steps to memory that tutti run keeps, to resume from after a restart; 0: never",
            whole(target.memory_copy_interval)}}};
}

void also_called(OptionGroup& group, std::string_view name, const char* alias) {
  for (Option& option : group.options)
    if (option.name == name) option.aliases.push_back(alias);
}

}  // namespace tutti::cli
