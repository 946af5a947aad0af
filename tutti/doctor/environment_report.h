#pragma once
// What a report of a bug needs to say about where it happened: `tutti env`.
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/doctor/host_facts.h"

namespace tutti {

using NamedFacts = std::vector<std::pair<std::string, std::string>>;  // in the order to be shown

// `environment`: variables of tutti, launchers, schedulers and the libraries below are shown, secrets as "(set)".
NamedFacts environment_report(const HostFacts& facts, const Environment& environment);

}  // namespace tutti
