// tutti ckpt prune: the older ones go.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/checkpoint/folder/folder.h"
#include "tutti/checkpoint/folder/folder_lock.h"
#include "tutti/checkpoint/folder/stored_files.h"

namespace tutti::cli {
namespace in_ckpt_prune {
namespace {

constexpr const char* kSynopsis = "tutti ckpt prune DIR --keep N [OPTIONS]";
constexpr const char* kFooter = R"(
Removes the checkpoints that are not among the newest N, except those whose step is a multiple of M. It removes nothing
unless at least one of the checkpoints that stay is whole: manifest, files, their sizes and headers. A job may be
running: the command waits up to 10 s for a save that is under way.

Examples:
  tutti ckpt prune runs/a --keep 3
  tutti ckpt prune runs/a --keep 2 --every 1000 --dry-run

Exit codes:
  0  done
  1  a checkpoint cannot be removed, or none of those that stay is whole
  2  wrong usage, or no such folder)";

// With a folder for each node there are only the files of that node.
Status look_at(const std::string& folder) {
  const Manifest manifest = TUTTI_TRY(read_manifest(folder));
  const bool of_a_node = manifest.facts.layout.contains("hosts");
  bool any = manifest.files.empty();
  for (const StoredFile& file : manifest.files) {
    std::error_code unknown;
    const std::string path = folder + "/" + file.name;
    if (of_a_node && !std::filesystem::exists(std::filesystem::symlink_status(path, unknown))) continue;
    TUTTI_TRY(open_stored_file(folder, file));
    any = true;
  }
  if (any) return {};
  return Error{.code = Code::kCorrupt, .detail = fmt::format("{} has none of its files", folder)};
}

// The last checkpoint to resume from must stay while those that are kept are broken.
Status one_stays_whole(const std::vector<CheckpointFolder>& found, const std::vector<CheckpointFolder>& going) {
  std::string newest;
  std::size_t staying = 0;
  for (auto one = found.rbegin(); one != found.rend(); ++one) {
    const auto same = [&](const CheckpointFolder& other) { return other.step == one->step; };
    if (std::any_of(going.begin(), going.end(), same)) continue;
    const Status whole = look_at(one->path);
    if (whole.ok()) return {};
    if (++staying == 1) newest = to_string(whole.error());
  }
  return Error{
      .code = Code::kCorrupt,
      .detail = fmt::format("nothing was removed: none of the {} to keep is complete; the newest: {}", staying, newest),
      .hint = "tutti ckpt verify --all shows which are complete; move the others away, or keep more"};
}

struct Texts {
  std::string folder, keep, every = "0";
  bool dry = false;
};

Result<int> act(const Texts& texts) {
  if (texts.folder.empty()) return not_given("folder", kSynopsis, "tutti ckpt prune runs/a --keep 3");
  if (texts.keep.empty()) return not_given("--keep", kSynopsis, "tutti ckpt prune runs/a --keep 3");
  const KeepRule keep{
      .last = int(TUTTI_TRY(whole_number("--keep", texts.keep, 1, std::numeric_limits<int>::max()))),
      .every = TUTTI_TRY(whole_number("--every", texts.every, 0, std::numeric_limits<std::int64_t>::max()))};
  if (TUTTI_TRY(list_checkpoints(texts.folder)).empty())
    return Error{.code = Code::kNotFound, .detail = fmt::format("there is no checkpoint in {}", texts.folder)};
  std::optional<FolderLock> mine;
  if (!texts.dry) mine.emplace(TUTTI_TRY(FolderLock::take(texts.folder, FolderUse::kWriting)));
  const auto found = TUTTI_TRY(list_checkpoints(texts.folder));  // a save may have ended, and removed some
  const auto going = beyond(found, keep);
  if (!going.empty()) TUTTI_TRY(one_stays_whole(found, going));
  for (const CheckpointFolder& one : going) {
    if (mine) TUTTI_TRY(mine->still_mine());
    if (!texts.dry) TUTTI_TRY(remove_checkpoint(one.path));
    fmt::print("{} {}\n", texts.dry ? "would remove" : "removed", one.path);
  }
  fmt::print("{} of {} {}\n", found.size() - going.size(), found.size(), texts.dry ? "would stay" : "stay");
  return 0;
}

}  // namespace
}  // namespace in_ckpt_prune

int ckpt_prune_command(std::vector<std::string> arguments) {
  using namespace in_ckpt_prune;
  CLI::App app("Removes older checkpoints.", "tutti ckpt prune");
  Texts texts;
  dress(app, kFooter, kSynopsis);
  app.add_option("DIR", texts.folder, "the folder of a job's checkpoints");
  app.add_option("--keep", texts.keep, "keep the newest N checkpoints")->type_name("N");
  app.add_option("--every", texts.every, "also keep checkpoints whose step is a multiple of M (0: none)")
      ->type_name("M");
  app.add_flag("--dry-run", texts.dry, "only print what would be removed");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  return end_of(app, act(texts));
}

}  // namespace tutti::cli
