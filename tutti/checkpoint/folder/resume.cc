// A checkpoint that is found must be this user's own: anybody may put a step-9999999 into a folder that all may write
// to. One that is named is the user's choice, and a warning.
//
// Rank 0 looks what there is, and what it finds is the word for all. The one trap is a folder with two histories: a run
// that begins anew, or from step 100, in a folder that has a step 200, saves its step 150, is killed, and would then go
// on from the other history's step 200. So that is refused at the beginning, unless step 200 is one that does not
// verify: those are passed over again next time, or replaced when their step is reached.
#include "tutti/checkpoint/folder/resume.h"

#include <fmt/format.h>

#include <filesystem>

#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/folder/owners.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/objects.h"

namespace tutti {
namespace {

// -1: none, or no such folder.
Result<std::int64_t> newest_step(const std::string& folder) {
  std::error_code error;
  const bool exists = !folder.empty() && std::filesystem::exists(folder, error);
  if (error) return system_error(error.value(), fmt::format("cannot look for the folder {}", folder));
  if (!exists) return std::int64_t(-1);
  const auto found = TUTTI_TRY(list_checkpoints(folder));
  return found.empty() ? -1 : found.back().step;
}

Error later_ones(const std::string& folder, std::int64_t newest, const std::string& beginning) {
  return invalid_argument(
      fmt::format("{} already has a checkpoint of step {}, and this run begins {}: the next run that resumes would "
                  "take that checkpoint",
                  folder, newest, beginning),
      "save to another folder, move the later checkpoints away, or resume from the newest");
}

void tell(const Group& group, const ResumePoint& saved, bool weights_only) {
  if (group && group.rank() != 0) return;
  for (const std::string& why : saved.passed_over()) log::warn("skipped a checkpoint: " + why);
  if (weights_only && saved.source == ResumeSource::kNamed) {
    log::info(fmt::format("starting at step 0 with the weights of {}", saved.folder()));
  } else {
    log::info(fmt::format("resuming after step {} from {}", saved.facts().step, saved.folder()));
  }
}

// A word that is nearly one of those with a meaning, or a word of other programs, was hardly meant as a path.
Error with_hint(Error error, const std::string& resume) {
  static const std::vector<std::string> kWords = {"auto", "never"};
  std::error_code ignored;
  if (std::filesystem::exists(resume, ignored)) return error;
  error.detail = fmt::format("--resume {}: {}", resume, error.detail);
  const auto near = nearest(resume, kWords);
  error.hint = near ? fmt::format("did you mean --resume {}?", *near)
                    : "--resume takes auto (the newest in --save-dir, if there is one), never, or the path of a "
                      "checkpoint";
  return error;
}

Status check_owners(const Group& group, const ResumeOptions& options, const CheckpointReader& saved, bool was_named) {
  const std::string why = others_may_change(saved.folder(), saved.manifest(), options.folder);
  if (!was_named)
    return agree(group, why.empty()
                            ? Status()
                            : invalid_argument(fmt::format("the checkpoint to resume from is not safe: {}", why),
                                               fmt::format("if you trust it, name it: --resume {}; otherwise "
                                                           "move it away",
                                                           saved.folder())));
  if (!why.empty() && (!group || group.rank() == 0))
    log::warn(fmt::format("{}: anyone who can write to it can change this run", why));
  return {};
}

Result<CheckpointReader> open(const Group& group, const ResumeOptions& options, const std::string& path) {
  if (!options.node_folders) return CheckpointReader::open(group, path);
  auto found = TUTTI_TRY(open_node_folders(group, *options.node_folders, path, options.wanted));
  if (group.rank() == 0)
    for (const std::string& why : found.passed_over) log::warn("skipped a checkpoint: " + why);
  return std::move(found.reader);
}

Error nothing_to_go_on_from(Error error, const std::string& folder) {
  if (error.code != Code::kCorrupt && error.code != Code::kNotFound) return error;
  if (error.hint.empty()) error.hint = fmt::format("see tutti ckpt verify {} --all", folder);
  error.hint +=
      "; restore what is missing, or start from scratch: in another folder, or here after moving all of it away";
  return error;
}

Result<std::optional<ResumePoint>> find(const Group& group, const ResumeOptions& options) {
  const std::int64_t newest = TUTTI_TRY(newest_saved_step(group, options));
  const bool newest_counts = options.resume == "auto" || (options.restarted && newest >= 0);
  if (newest_counts) {
    if (newest < 0) return std::optional<ResumePoint>();
    auto newest_whole = open(group, options, options.folder);
    if (!newest_whole.ok()) return nothing_to_go_on_from(newest_whole.error(), options.folder);
    auto saved = *std::move(newest_whole);
    TUTTI_TRY(check_owners(group, options, saved, false));
    return std::optional(ResumePoint{std::move(saved), ResumeSource::kOwnFolder});
  }
  if (options.resume == "never") {
    if (newest >= 0) return later_ones(options.folder, newest, "from scratch");
    return std::optional<ResumePoint>();
  }
  auto opened = open(group, options, options.resume);
  if (!opened.ok()) return with_hint(opened.error(), options.resume);
  auto saved = *std::move(opened);
  TUTTI_TRY(check_owners(group, options, saved, true));
  if (options.weights_only) {
    if (newest >= 0) return later_ones(options.folder, newest, "at step 0 with the weights of " + saved.folder());
  } else if (newest > saved.facts().step && saved.passed_over().empty()) {
    return later_ones(options.folder, newest, fmt::format("after step {}", saved.facts().step));
  }
  return std::optional(ResumePoint{std::move(saved), ResumeSource::kNamed});
}

}  // namespace

Result<std::int64_t> newest_saved_step(const Group& group, const ResumeOptions& options) {
  if (options.node_folders && !options.folder.empty())
    return newest_node_step(group, *options.node_folders, options.folder);
  const Result<std::int64_t> newest =
      !group || group.rank() == 0 ? newest_step(options.folder) : Result(std::int64_t(-1));
  TUTTI_TRY(agree(group, newest.status()));
  if (!group) return newest;
  std::string word = std::to_string(*newest);
  broadcast_bytes(group, word);
  return std::stoll(word);
}

bool was_restarted() {
  for (const char* name : {"TUTTI_GENERATION", "TORCHELASTIC_RESTART_COUNT"}) {
    const auto text = env(name);
    const auto number = text ? parse_int(*text) : std::nullopt;
    if (number && *number > 0) return true;
  }
  return false;
}

Result<std::optional<ResumePoint>> resume_point(const Group& group, const ResumeOptions& options) {
  try {
    auto found = TUTTI_TRY(find(group, options));
    if (found) tell(group, *found, options.weights_only);
    return found;
  } catch (const Exception& error) {
    return error.error();
  }
}

}  // namespace tutti
