#include "base/capabilities.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <vector>

namespace memtrace {
namespace {

/// Two words of 32 capabilities each (_LINUX_CAPABILITY_U32S_3).
struct CapabilitySets {
    uint64_t effective = 0;
    uint64_t permitted = 0;
};

__user_cap_header_struct header_of_this_thread() {
    return {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
}

CapabilitySets read_sets() {
    __user_cap_header_struct header = header_of_this_thread();
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data{};
    if (syscall(SYS_capget, &header, data.data()) != 0) return {};
    return {.effective = data[0].effective | static_cast<uint64_t>(data[1].effective) << 32,
            .permitted = data[0].permitted | static_cast<uint64_t>(data[1].permitted) << 32};
}

uint64_t bit_of(Capability capability) {
    return uint64_t{1} << static_cast<unsigned>(capability);
}

std::string joined(const std::vector<std::string_view>& names) {
    std::string text;
    for (size_t index = 0; index < names.size(); ++index) {
        if (index > 0) text += index + 1 == names.size() ? " and " : ", ";
        text += names[index];
    }
    return text;
}

}  // namespace

std::string_view capability_name(Capability capability) {
    switch (capability) {
        case Capability::dac_read_search:
            return "cap_dac_read_search";
        case Capability::kill:
            return "cap_kill";
        case Capability::sys_ptrace:
            return "cap_sys_ptrace";
        case Capability::sys_admin:
            return "cap_sys_admin";
        case Capability::sys_nice:
            return "cap_sys_nice";
        case Capability::perfmon:
            return "cap_perfmon";
        case Capability::bpf:
            return "cap_bpf";
        case Capability::checkpoint_restore:
            return "cap_checkpoint_restore";
    }
    return "";
}

bool has_capability(Capability capability) {
    return (read_sets().effective & bit_of(capability)) != 0;
}

std::string missing_capabilities(std::span<const Capability> wanted) {
    std::vector<std::string_view> names;
    for (const Capability capability : wanted)
        if (!has_capability(capability)) names.push_back(capability_name(capability));
    return joined(names);
}

std::string reason_of_refusal(std::span<const Capability> wanted) {
    const std::string missing = missing_capabilities(wanted);
    if (missing.empty()) return "not permitted, though no capability is missing (container, seccomp, security module?)";
    return fmt::format("not privileged: {} {} missing", missing,
                       missing.find(" and ") == std::string::npos ? "is" : "are");
}

std::string privilege_hint() {
    std::vector<std::string_view> names;
    for (const Capability capability : {Capability::bpf, Capability::perfmon, Capability::sys_ptrace,
                                        Capability::dac_read_search, Capability::checkpoint_restore})
        names.push_back(capability_name(capability));
    return fmt::format("run as root (sudo memtrace ...), or setcap {}=ep on its file", fmt::join(names, ","));
}

Result<void> keep_only(std::span<const Capability> kept) {
    uint64_t wanted = 0;
    for (const Capability capability : kept)
        wanted |= bit_of(capability);
    // Needs cap_setpcap, which is given up below; without it there is nothing that could be dropped from the set.
    constexpr unsigned long most_capabilities = 64;
    for (unsigned long number = 0; number < most_capabilities; ++number)
        if ((wanted >> number & 1) == 0) (void)prctl(PR_CAPBSET_DROP, number, 0, 0, 0);
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const CapabilitySets sets = read_sets();
    const uint64_t effective = sets.effective & wanted;
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data{};
    for (size_t word = 0; word < data.size(); ++word) {
        data[word].effective = static_cast<uint32_t>(effective >> 32 * word);
        data[word].permitted = data[word].effective;
    }
    __user_cap_header_struct header = header_of_this_thread();
    if (syscall(SYS_capset, &header, data.data()) != 0) return Error{"cannot give up privileges", errno_text(errno)};
    return {};
}

}  // namespace memtrace
