// What the running kernel has of all that memtrace uses, each asked of the kernel by trying. Attaches nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace memtrace {

enum class FeatureState { present, missing, not_permitted };

struct KernelFeature {
    std::string_view name;
    std::string_view buys;  // what it is good for, one clause
    FeatureState state = FeatureState::missing;
    bool is_needed = false;  // nothing can be traced without it
};

/// In the order in which they matter. What could not be tried for want of a privilege is `not_permitted`.
std::vector<KernelFeature> kernel_features();

}  // namespace memtrace
