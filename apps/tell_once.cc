#include "apps/tell_once.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/command_line.h"
#include "tutti/base/env.h"
#include "tutti/rendezvous/identity.h"

namespace tutti::cli {

void tell_once(const std::string& command, const Error& error) {
  const auto who = identify({}, current_environment());
  if (!who.ok() || who->rank == 0) return tell(command, error);
  const auto path = env("TORCHELASTIC_ERROR_FILE");
  if (path && (std::ofstream(*path) << nlohmann::json{{"message", to_string(error)}}.dump()).flush()) return;
  fmt::print(stderr,
             "{}: rank {} leaves before the ranks meet: its options cannot be right (rank 0, if it was given the same, "
             "says why)\n",
             command, who->rank);
}

}  // namespace tutti::cli
