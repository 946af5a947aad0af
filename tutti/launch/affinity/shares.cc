// GPUs have two numberings: CUDA counts those that CUDA_VISIBLE_DEVICES lists, from 0. --devices counts as CUDA does in
// this process, so a share of a share works as expected (a scheduler gave GPUs 4 to 7, and the job uses two of them).
// What the ranks get is written in the names of the outer list.
//
// torchrun shows all GPUs to every rank, and the program uses number LOCAL_RANK. That is the default here as well,
// because programs are written for it. With one GPU each, number 0 is always the right one.
#include "tutti/launch/affinity/shares.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr std::string_view kLocalRank = "${local_rank}";

Error bad_list(const std::string& list, const std::string& part) {
  return Error{.code = Code::kUsage,
               .detail = "--devices needs numbers and ranges, not '" + part + "'" +
                         (part == list ? std::string() : " (in '" + list + "')"),
               .hint = "for example --devices 0,2-3"};
}

// "0,2-3" in the order given.
Result<std::vector<int>> parse_devices(const std::string& list) {
  constexpr int kMost = 1024;
  std::vector<int> numbers;
  std::set<int> seen;
  for (const std::string& part : split(list, ',')) {
    const std::string_view word = trim(part);
    const auto dash = word.find('-');
    const auto first = parse_int(word.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_int(word.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMost) return bad_list(list, std::string(word));
    for (auto number = *first; number <= *last; ++number) {
      if (!seen.insert(int(number)).second)
        return Error{.code = Code::kUsage, .detail = "--devices names GPU " + std::to_string(number) + " twice"};
      numbers.push_back(int(number));
    }
  }
  return numbers;
}

// Every `from` in `text` becomes `to`.
std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

std::string Share::text() const {
  return (cpus.empty() ? "any CPU" : "CPU " + ranks_text(cpus)) + (gpu.empty() ? "" : ", GPU " + gpu);
}

Result<std::vector<std::string>> chosen_devices(const std::string& list, const std::vector<std::string>& visible) {
  if (list.empty()) return visible;
  std::vector<std::string> chosen;
  for (const int number : TUTTI_TRY(parse_devices(list))) {
    if (std::size_t(number) < visible.size()) {
      chosen.push_back(visible[std::size_t(number)]);
      continue;
    }
    return Error{.code = Code::kUsage,
                 .detail = "--devices names GPU " + std::to_string(number) + ", but " +
                           (visible.empty() ? "no GPU is visible on this host"
                                            : counted(visible.size(), "GPU") + (visible.size() == 1 ? " is" : " are") +
                                                  " visible on this host, numbered from 0"),
                 .hint = "nvidia-smi -L lists the GPUs; CUDA_VISIBLE_DEVICES and containers hide some"};
  }
  return chosen;
}

Result<std::vector<Share>> share_out(const ShareOptions& options, const Topology& topology,
                                     const std::vector<std::string>& visible, int ranks, const std::vector<int>& near) {
  const std::vector<std::string> gpus = TUTTI_TRY(chosen_devices(options.devices, visible));
  const bool one_each = options.one_device_each || options.virtual_local_rank;
  const std::string option = options.virtual_local_rank ? "--virtual-local-rank" : "--visible one";
  if (one_each && int(gpus.size()) < ranks) {
    return Error{.code = Code::kUsage,
                 .detail = option + " needs a GPU for each of " + counted(std::size_t(ranks), "rank") + ", but " +
                           (gpus.empty() ? "none is visible on this host"
                                         : "the job has " + counted(gpus.size(), "GPU") + " on this host"),
                 .hint = "-n gpu starts as many ranks as there are GPUs"};
  }
  const auto bound = bind_ranks(topology, options.bind, ranks, near);
  std::vector<Share> shares;
  for (int rank = 0; rank < ranks; ++rank) {
    Share share{.cpus = bound[std::size_t(rank)], .gpu = {}, .variables = {}};
    if (!gpus.empty()) share.gpu = gpus[std::size_t(rank) % gpus.size()];
    if (one_each) {
      share.variables[kVisible] = share.gpu;
    } else if (!options.devices.empty()) {
      share.variables[kVisible] = join(gpus, ",");
    }
    if (options.virtual_local_rank) share.variables["LOCAL_RANK"] = "0";
    shares.push_back(std::move(share));
  }
  return shares;
}

std::string substituted(std::string_view text, const Environment& values) {
  const auto is_of_a_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::string result;
  while (!text.empty()) {
    const std::size_t dollar = std::min(text.find('$'), text.size());
    result += text.substr(0, dollar);
    text.remove_prefix(dollar);
    if (text.empty()) break;
    const bool braces = text.starts_with("${");
    std::size_t begin = braces ? 2 : 1, end = begin;
    while (end < text.size() && is_of_a_name(text[end])) ++end;
    const auto known = values.find(std::string(text.substr(begin, end - begin)));
    if (text.starts_with("$$")) {
      result += '$';
      end = 2;
    } else if (known != values.end() && (!braces || text.substr(end).starts_with('}'))) {
      result += known->second;
      end += braces;
    } else {
      result += text.substr(0, end);
    }
    text.remove_prefix(end);
  }
  return result;
}

std::vector<std::string> arguments_of_rank(const std::vector<std::string>& arguments, int local_rank,
                                           bool pass_local_rank) {
  std::vector<std::string> replaced_arguments = arguments;
  const std::string number = std::to_string(local_rank);
  for (std::string& argument : replaced_arguments) argument = replaced(std::move(argument), kLocalRank, number);
  if (pass_local_rank) replaced_arguments.push_back("--local-rank=" + number);
  return replaced_arguments;
}

}  // namespace tutti::launch
