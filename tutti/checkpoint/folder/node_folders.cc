// The ranks that share a folder look at it together: their lowest one says what is there, and each verifies its part of
// the bytes. A step counts when the nodes that have its manifest agree on it and every file is good on some node: so a
// node without any folder, a new one, may take part, and one that died between the renames of the others does no harm.
#include "tutti/checkpoint/folder/node_folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tutti/base/crc32c.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/folder/folder.h"
#include "tutti/checkpoint/folder/stored_files.h"
#include "tutti/checkpoint/io/stored_bytes.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/json_objects.h"

namespace tutti {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr ObjectLimit kManifests{.most = std::size_t(4) << 30};

// "step-0000100" or nothing, and the folder around it.
std::pair<std::string, std::optional<std::int64_t>> split_path(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const auto step = step_of_folder(fs::path(path).filename());
  return {step ? fs::path(path).parent_path().string() : path, step};
}

std::vector<std::int64_t> steps_here(const std::string& folder) {
  std::vector<std::int64_t> steps;
  const auto found = list_checkpoints(folder);
  if (found.ok())
    for (const CheckpointFolder& one : *found) steps.push_back(one.step);
  return steps;
}

// Of all folders, the newest first. Equal on all ranks.
std::set<std::int64_t, std::greater<>> all_steps(const Group& group, const NodeFolders& nodes,
                                                 const std::string& folder) {
  const bool leads = nodes.places.leads(group.rank());
  std::set<std::int64_t, std::greater<>> steps;
  for (const json& of_rank : all_gather_json(group, leads ? json(steps_here(folder)) : json::array()))
    for (const json& step : of_rank) steps.insert(step.get<std::int64_t>());
  return steps;
}

// The host on which a file was written: its name has the number of the rank, and the manifest the hosts by rank.
std::string host_of(const Manifest& manifest, const std::string& file) {
  const auto hosts = manifest.facts.layout.find("hosts");
  const auto first = file.find('-');
  if (hosts == manifest.facts.layout.end() || first == std::string::npos) return "a host that it does not name";
  const auto names = split(std::get<std::string>(hosts->second), ',');
  const auto number = parse_int(file.substr(first + 1, file.find('-', first + 1) - first - 1)).value_or(0);
  return number >= 1 && std::size_t(number) <= names.size() ? names[std::size_t(number) - 1] : "an unknown host";
}

class Opening {
 public:
  Opening(const Group& group, const NodeFolders& nodes, std::string folder, std::span<const StateBox> wanted,
          VerifyLevel level)
      : group_(group), nodes_(nodes), folder_(std::move(folder)), wanted_(wanted), level_(level) {}

  Result<CheckpointReader> open(std::int64_t step) {
    const std::string path = folder_ + "/" + checkpoint_folder_name(step);
    const Manifest manifest = TUTTI_TRY(manifest_of(path));
    std::vector<Fd> files = open_here(path, manifest);
    const std::vector<int> servers = TUTTI_TRY(servers_of(path, manifest, files));
    std::vector<FileHere> here;
    for (Fd& file : files) here.push_back({.near = std::move(file)});
    return read_scattered(group_, path, manifest, std::move(here), servers, wanted_);
  }

 private:
  int me() const { return group_.rank(); }

  // From the first node that has one; those that have another are told.
  Result<Manifest> manifest_of(const std::string& path) {
    std::string text;
    Status trouble;
    std::error_code ignored;
    if (nodes_.places.leads(me()) && fs::exists(path, ignored)) {
      const auto manifest = read_manifest(path);
      const auto composed = manifest.ok() ? compose_manifest(*manifest) : manifest.status();
      trouble = composed.status();
      if (composed.ok()) text = *composed;
    }
    TUTTI_TRY(agree(group_, trouble));
    const std::uint32_t digest = text.empty() ? 0 : crc32c(std::as_bytes(std::span(text)));
    const auto digests = all_gather_json(group_, json::array({!text.empty(), digest}));
    int first = -1;
    for (int rank = 0; rank < group_.size(); ++rank) {
      const json& theirs = digests[std::size_t(rank)];
      if (!theirs.at(0).get<bool>()) continue;
      if (first < 0) first = rank;
      if (theirs.at(1) != digests[std::size_t(first)].at(1))
        return Error{.code = Code::kMismatch,
                     .detail = fmt::format("{} on host {} is another checkpoint than on host {}", path,
                                           nodes_.hosts[std::size_t(rank)], nodes_.hosts[std::size_t(first)])};
    }
    if (first < 0) return Error{.code = Code::kNotFound, .detail = fmt::format("{} is on no node", path)};
    broadcast_bytes(group_, text, first, kManifests);
    return parse_manifest(text);
  }

  // The files that this rank's folder has, and why not those that are there and cannot be used.
  std::vector<Fd> open_here(const std::string& path, const Manifest& manifest) {
    std::vector<Fd> files(manifest.files.size());
    for (std::size_t f = 0; f < files.size(); ++f) {
      std::error_code ignored;
      if (!fs::exists(fs::symlink_status(path + "/" + manifest.files[f].name, ignored))) continue;
      auto file = open_stored_file(path, manifest.files[f]);
      if (!file.ok()) bad_.emplace(f, file.error().detail);
      if (file.ok()) files[f] = *std::move(file);
    }
    if (level_ == VerifyLevel::kAll) verify(path, manifest, files);
    for (const auto& [file, why] : bad_) files[file] = Fd();
    held_.clear();
    for (std::size_t f = 0; f < files.size(); ++f)
      if (files[f]) held_.push_back(f);
    return files;
  }

  // Its part of the chunks of the files that its place has.
  void verify(const std::string& path, const Manifest& manifest, const std::vector<Fd>& files) {
    const std::uint64_t parts = nodes_.places.mates(me()).size(), part = std::uint64_t(nodes_.places.local_rank(me()));
    const auto here = [&](std::size_t file) { return bool(files[file]) && !bad_.contains(file); };
    HeldChunks chunks;
    (void)for_each_chunk_run(manifest, part, parts, here, [&](const ChunkRun& run) -> Status {
      StoredBytes bytes(files[run.box.file].get(), path + "/" + manifest.files[run.box.file].name, run.box,
                        run.box.box.elements() * size_of(run.tensor.dtype), manifest.chunk_bytes,
                        to_string(run.key) + " " + box_text(run.box.box), chunks);
      for (std::uint64_t chunk = run.begin; chunk < run.end && !bad_.contains(run.box.file); ++chunk)
        if (const Status good = bytes.check_chunk(chunk); !good.ok()) bad_.emplace(run.box.file, good.error().detail);
      return {};
    });
  }

  // A rank for each file that has it, and all of whose mates have it. What one of the mates has found to be bad is bad.
  Result<std::vector<int>> servers_of(const std::string& path, const Manifest& manifest, std::vector<Fd>& files) {
    json bad = json::array();
    for (const auto& [file, why] : bad_) bad.push_back({file, why});
    const auto all = all_gather_json(group_, json::array({held_, bad}), kManifests);
    std::vector<int> servers;
    for (std::size_t f = 0; f < manifest.files.size(); ++f) {
      const auto holds = [&](int rank) {
        const json& held = all[std::size_t(rank)].at(0);
        return std::find(held.begin(), held.end(), f) != held.end();
      };
      const auto& mine = nodes_.places.mates(me());
      if (!std::all_of(mine.begin(), mine.end(), holds)) files[f] = Fd();
      int server = -1;
      for (const auto& mates : nodes_.places.ranks_of)
        if (server < 0 && std::all_of(mates.begin(), mates.end(), holds)) server = mates[f % mates.size()];
      if (server < 0) return missing(path, manifest, f, all);
      servers.push_back(server);
    }
    return servers;
  }

  Error missing(const std::string& path, const Manifest& manifest, std::size_t file,
                const std::vector<json>& all) const {
    const std::string& name = manifest.files[file].name;
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      for (const json& bad : all[rank].at(1))
        if (bad.at(0) == file)
          return {.code = Code::kCorrupt,
                  .detail = fmt::format("on host {}: {}", nodes_.hosts[rank], bad.at(1).get<std::string>())};
    return {.code = Code::kNotFound,
            .detail = fmt::format("{}/{}, which was written on host {}, is on none of the nodes", path, name,
                                  host_of(manifest, name)),
            .hint = "bring that host back, or copy its folder to one of the nodes"};
  }

  const Group& group_;
  const NodeFolders& nodes_;
  const std::string folder_;
  const std::span<const StateBox> wanted_;
  const VerifyLevel level_;
  std::map<std::size_t, std::string> bad_;  // files that are here and cannot be used
  std::vector<std::size_t> held_;
};

}  // namespace

Status told_with_host(Status status) {
  if (status.ok()) return status;
  Error error = status.error();
  error.detail = fmt::format("on host {}: {}", host_name(), error.detail);
  return error;
}

Result<std::int64_t> newest_node_step(const Group& group, const NodeFolders& nodes, const std::string& folder) {
  const auto steps = all_steps(group, nodes, folder);
  return steps.empty() ? -1 : *steps.begin();
}

Result<OnNodes> open_node_folders(const Group& group, const NodeFolders& nodes, const std::string& path,
                                  std::span<const StateBox> wanted, VerifyLevel level) {
  try {
    const auto [folder, only] = split_path(path);
    std::vector<std::string> passed_over;
    Error last{.code = Code::kNotFound, .detail = fmt::format("there is no checkpoint in {} on any node", path)};
    for (const std::int64_t step : all_steps(group, nodes, folder)) {
      if (only && step != *only) continue;
      auto reader = Opening(group, nodes, folder, wanted, level).open(step);
      TUTTI_TRY(group.status());
      if (reader.ok()) return OnNodes{*std::move(reader), std::move(passed_over)};
      last = reader.error();
      passed_over.push_back(to_string(last));
    }
    if (passed_over.size() <= 1) return last;
    return Error{.code = Code::kCorrupt,
                 .detail = fmt::format("none of the {} checkpoints in {} is whole; the newest: {}", passed_over.size(),
                                       path, passed_over.front())};
  } catch (const Exception& error) {
    return error.error();
  }
}

}  // namespace tutti
