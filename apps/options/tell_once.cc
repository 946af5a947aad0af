#include "apps/options/tell_once.h"

#include <fmt/format.h>

#include "apps/options/command_line.h"
#include "tutti/base/env.h"
#include "tutti/launch/output/error_files.h"
#include "tutti/rendezvous/identity.h"

namespace tutti::cli {

void tell_once(const std::string& command, const Error& error) {
  const auto who = rendezvous::identify({}, current_environment());
  const bool written = launch::write_error_file(to_string(error));
  if (!who.ok() || who->rank == 0) return tell(command, error);
  if (written) return;
  fmt::print(stderr,
             "{}: rank {} leaves before the ranks meet: its options cannot be right (rank 0, if it was given the same, "
             "says why)\n",
             command, who->rank);
}

}  // namespace tutti::cli
