// A save in six steps, each of which all ranks have to have done well before the next begins:
//   1. each rank looks at what it was given
//   2. all tell all what they have, and find out alike who writes what (save_plan.h)
//   3. rank 0 makes a folder that nobody takes for a checkpoint yet
//   4. each rank writes its files there, flushed, and notes where everything lies: its part of the manifest
//   5. rank 0 puts the parts together and writes the manifest
//   6. rank 0 flushes the folder and gives it its name
// Step 4 may take long, and longer on one rank than on another, where a collective has a deadline: so the ranks meet
// after every gigabyte, as often as the one that writes most has to, those that are done (or have failed) as well.
//
// The one thing that decides is the rename in step 6; before it, any error on any rank only takes the folder away.
#include "tutti/checkpoint/io/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "tutti/base/fd.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/folder/folder.h"
#include "tutti/checkpoint/folder/folder_lock.h"
#include "tutti/checkpoint/folder/node_folders.h"
#include "tutti/checkpoint/format/manifest.h"
#include "tutti/checkpoint/io/save_part.h"
#include "tutti/checkpoint/io/save_plan.h"
#include "tutti/checkpoint/io/shard_file.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/objects.h"
#include "tutti/version.h"

namespace tutti {
namespace {

constexpr ObjectLimit kParts{.most = std::size_t(4) << 30};

std::string new_mark() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

Status write_flushed(const std::string& path, const std::string& text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) return system_error(errno, fmt::format("cannot create {}", path));
  TUTTI_TRY(write_all(fd.get(), std::as_bytes(std::span(text)), path));
  if (::fsync(fd.get()) != 0) return system_error(errno, fmt::format("cannot flush {}", path));
  return {};
}

// Where ranks wait for one another while they write: after `every` bytes, `all` times.
class Meetings {
 public:
  Meetings(const Group& group, std::uint64_t every, std::uint64_t all) : group_(group), every_(every), left_(all) {}
  // What has been written goes to the disk on the way, so that the last flush is short. An error is told here and never
  // again: the kernel forgets it.
  Status written(int fd, const std::string& path, std::uint64_t bytes) {
    since_ += bytes;
    if (since_ < every_ || left_ == 0) return {};
    const int flushed = ::fdatasync(fd);
    const int error = errno;
    for (; since_ >= every_ && left_ > 0; since_ -= every_) meet();
    return flushed == 0 ? Status() : system_error(error, fmt::format("cannot flush {}", path));
  }
  void finish() {
    while (left_ > 0) meet();
  }

 private:
  void meet() {
    --left_;
    if (group_) barrier(group_);
  }
  const Group& group_;
  const std::uint64_t every_;
  std::uint64_t left_, since_ = 0;
};

class Saving {
 public:
  Saving(const Group& group, const std::string& folder, std::span<const StateBox> boxes, const CheckpointFacts& facts,
         const SaveOptions& options, const NodeFolders* nodes, const FolderLock* job)
      : group_(group), folder_(folder), boxes_(boxes), facts_(facts), options_(options), nodes_(nodes), job_(job) {}

  // Steps 3 to 6.
  Status write(const SavePart& mine) {
    std::optional<CheckpointDraft> draft;
    TUTTI_TRY(agree(group_, begin(draft)));
    // Rank 0's word: the mark of the files, the step, how often to meet.
    std::string word = fmt::format("{} {} {}", new_mark(), facts_.step, options_.meet_every);
    if (group_) broadcast_bytes(group_, word);
    const auto words = split(word, ' ');
    const std::string& mark = words.at(0);
    const std::int64_t step = std::stoll(words.at(1));
    const std::uint64_t meet_every = std::stoull(words.at(2));
    Meetings meetings(group_, meet_every, mine.most / meet_every);

    const auto part = write_files(CheckpointDraft::path_of(folder_, step), mark, mine.boxes, meetings);
    meetings.finish();
    TUTTI_TRY(agree(group_, part.status()));
    const Status saved = nodes_ ? finish_on_nodes(draft, step, *part) : agree(group_, finish(draft, *part));
    if (saved.ok() && commits()) call_on_saved(folder_ + "/" + checkpoint_folder_name(step));
    return saved;
  }

 private:
  bool is_root() const { return !group_ || group_.rank() == 0; }
  bool commits() const {  // makes the folder, and gives it its name
    return nodes_ ? nodes_->places.leads(rank()) : is_root();
  }
  int rank() const { return group_ ? group_.rank() : 0; }
  int size() const { return group_ ? group_.size() : 1; }

  Status begin(std::optional<CheckpointDraft>& draft) { return commits() ? on_this_host(make_draft(draft)) : Status(); }
  Status make_draft(std::optional<CheckpointDraft>& draft) {
    if (job_) TUTTI_TRY(job_->still_mine());
    const FolderWait wait{.patience = group_ ? std::min(kFolderPatience, group_.timeout() / 2) : kFolderPatience};
    TUTTI_TRY(make_folder(folder_));
    folder_lock_.emplace(TUTTI_TRY(FolderLock::take(folder_, FolderUse::kWriting, wait)));
    draft.emplace(TUTTI_TRY(CheckpointDraft::create(folder_, facts_.step)));
    return {};
  }

  // My part of the manifest, as text.
  Result<std::string> write_files(const std::string& path, const std::string& mark,
                                  const std::vector<std::size_t>& mine, Meetings& meetings) const {
    Manifest part;
    for (const bool of_optimizer : {false, true}) {
      std::vector<const StateBox*> chosen;
      for (const std::size_t number : mine)
        if (boxes_[number].key.state.empty() != of_optimizer) chosen.push_back(&boxes_[number]);
      if (chosen.empty()) continue;
      const std::string name =
          fmt::format("{}-{:05}-of-{:05}.safetensors", of_optimizer ? "optimizer" : "model", rank() + 1, size());
      TUTTI_TRY(write_caught(path, name, chosen, mark, part, meetings));
    }
    return compose_manifest(part);
  }

  // What a source throws must not keep this rank from meeting the others.
  static Status write_caught(const std::string& path, const std::string& name,
                             const std::vector<const StateBox*>& boxes, const std::string& mark, Manifest& part,
                             Meetings& meetings) {
    try {
      return write_shard(path, name, boxes, mark, part, [&](int fd, const std::string& file, std::uint64_t bytes) {
        return meetings.written(fd, file, bytes);
      });
    } catch (const Exception& error) {
      return error.error();
    } catch (const std::exception& error) {
      return Error{.code = Code::kAborted, .detail = fmt::format("a source of rows threw: {}", error.what())};
    }
  }

  // Of all parts, as text, on rank 0.
  Result<std::string> put_together(const std::string& part) const {
    const std::vector<std::string> parts =
        group_ ? gather_bytes(group_, part, 0, kParts) : std::vector<std::string>{part};
    if (!is_root()) return std::string();
    Manifest whole{.facts = facts_};
    whole.facts.versions.emplace("tutti", TUTTI_VERSION);
    if (nodes_) whole.facts.layout["hosts"] = join(nodes_->hosts, ",");
    for (const std::string& one : parts) merge(whole, TUTTI_TRY(parse_manifest_part(one)));
    return compose_manifest(whole);
  }

  // A lock that was removed by hand meanwhile may be another's: then two would write, and remove, side by side.
  Status commit(CheckpointDraft& draft) const {
    if (job_) TUTTI_TRY(on_this_host(job_->still_mine()));
    TUTTI_TRY(on_this_host(folder_lock_->still_mine()));
    return draft.commit({.last = options_.keep, .every = options_.keep_every});
  }
  // Without the other ranks, whose calls have deadlines.
  void call_on_saved(const std::string& path) const {
    if (!options_.on_saved) return;
    Status done;
    try {
      done = options_.on_saved(path);
    } catch (const std::exception& error) {
      done = Error{.code = Code::kAborted, .detail = error.what()};
    }
    if (!done.ok()) log::warn(fmt::format("{} is saved, but on_saved failed: {}", path, to_string(done.error())));
  }
  // Where each node has a folder of its own a path alone does not say which.
  Status on_this_host(const Status& status) const { return nodes_ ? told_with_host(status) : status; }

  Status finish(std::optional<CheckpointDraft>& draft, const std::string& part) const {
    const std::string manifest = TUTTI_TRY(put_together(part));
    if (!is_root()) return {};
    TUTTI_TRY(write_flushed(CheckpointDraft::path_of(folder_, facts_.step) + "/" + kManifestName, manifest));
    return commit(*draft);
  }

  // One rename on each node, when all have all else: a node that dies between them leaves a step that some have and
  // some have not, which whoever loads finds out.
  Status finish_on_nodes(std::optional<CheckpointDraft>& draft, std::int64_t step, const std::string& part) const {
    auto manifest = put_together(part);
    TUTTI_TRY(agree(group_, manifest.status()));
    if (group_) broadcast_bytes(group_, *manifest, 0, kParts);
    Status written;
    if (commits()) written = write_flushed(CheckpointDraft::path_of(folder_, step) + "/" + kManifestName, *manifest);
    TUTTI_TRY(agree(group_, written));
    return agree(group_, commits() ? commit(*draft) : Status());
  }

  const Group& group_;
  const std::string& folder_;
  const std::span<const StateBox> boxes_;
  const CheckpointFacts& facts_;
  const SaveOptions& options_;
  const NodeFolders* const nodes_;         // null: all ranks see one folder
  const FolderLock* const job_;            // null: no job has the folder, or another rank knows
  std::optional<FolderLock> folder_lock_;  // of who commits; until the draft is a checkpoint, or gone
};

Status check(std::span<const StateBox> boxes, const CheckpointFacts& facts, const SaveOptions& options) {
  if (facts.step < 0) return invalid_argument(fmt::format("checkpoint: the step {} is negative", facts.step));
  if (options.meet_every == 0) return invalid_argument("checkpoint: meet_every is 0; give a number of bytes");
  if (options.keep < 0) return invalid_argument(fmt::format("checkpoint: cannot keep {} of them", options.keep));
  if (options.keep_every < 0)
    return invalid_argument(fmt::format("checkpoint: cannot keep every {}-th of them", options.keep_every));
  for (const StateBox& box : boxes) TUTTI_TRY(check(box));
  return {};
}

}  // namespace

Result<SavePart> plan_my_part(const Group& group, std::span<const StateBox> boxes, const CheckpointFacts& facts,
                              const SaveOptions& options) {
  TUTTI_TRY(agree(group, check(boxes, facts, options)));
  std::vector<GivenBox> mine;
  for (const StateBox& box : boxes) mine.push_back({box.key, box.dtype, box.shape, box_of(box), box.may_differ});
  std::vector<std::vector<GivenBox>> all;
  if (!group) {
    all.push_back(std::move(mine));
  } else {
    const auto text = encode_given(mine);
    TUTTI_TRY(agree(group, text.status()));
    for (const std::string& one : all_gather_bytes(group, *text, kParts)) all.push_back(TUTTI_TRY(decode_given(one)));
  }
  auto writers = TUTTI_TRY(plan_save(all));
  SavePart part;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::uint64_t bytes = 0;
    for (const std::size_t number : writers[rank])
      bytes += all[rank][number].box.elements() * size_of(all[rank][number].dtype);
    part.most = std::max(part.most, bytes);
  }
  part.boxes = std::move(writers[group ? std::size_t(group.rank()) : 0]);
  return part;
}

Status write_my_part(const Group& group, const std::string& folder, std::span<const StateBox> boxes,
                     const SavePart& part, const CheckpointFacts& facts, const SaveOptions& options,
                     const NodeFolders* nodes, const FolderLock* job) {
  return Saving(group, folder, boxes, facts, options, nodes, job).write(part);
}

Status save_on_nodes(const Group& group, const NodeFolders& nodes, const std::string& folder,
                     std::span<const StateBox> boxes, const CheckpointFacts& facts, const SaveOptions& options) {
  try {
    const SavePart part = TUTTI_TRY(plan_my_part(group, boxes, facts, options));
    return write_my_part(group, folder, boxes, part, facts, options, &nodes);
  } catch (const Exception& error) {
    return error.error();
  }
}

Status save_checkpoint(const Group& group, const std::string& folder, std::span<const StateBox> boxes,
                       const CheckpointFacts& facts, const SaveOptions& options) {
  try {
    const SavePart part = TUTTI_TRY(plan_my_part(group, boxes, facts, options));
    return write_my_part(group, folder, boxes, part, facts, options);
  } catch (const Exception& error) {
    return error.error();
  }
}

Status save_checkpoint(const Group& group, const std::string& folder, const StateDict& state,
                       const SaveOptions& options) {
  return save_checkpoint(group, folder, state.boxes(), state.facts(), options);
}

Status save_checkpoint(const std::string& folder, std::span<const StateBox> boxes, const CheckpointFacts& facts,
                       const SaveOptions& options) {
  return save_checkpoint(Group(), folder, boxes, facts, options);
}

}  // namespace tutti
