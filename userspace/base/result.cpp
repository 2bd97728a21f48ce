#include "base/result.hpp"

#include <system_error>

namespace memtrace {

std::string errno_text(int error_number) {
    return std::generic_category().message(error_number);
}

}  // namespace memtrace
