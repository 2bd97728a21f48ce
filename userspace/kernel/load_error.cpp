#include "kernel/load_error.hpp"

#include <bpf/libbpf.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/capabilities.hpp"

namespace memtrace {
namespace {

/// libbpf's print hook has no context argument, so the text that it collects is the one global of this folder.
std::string& collected_text() {
    static std::string text;
    return text;
}

int collect(libbpf_print_level level, const char* format, va_list arguments) {
    if (level == LIBBPF_DEBUG) return 0;
    constexpr size_t enough_bytes = 1 << 20;
    std::string& text = collected_text();
    if (text.size() > enough_bytes) return 0;
    std::array<char, 4096> line;
    std::vsnprintf(line.data(), line.size(), format, arguments);
    text += line.data();
    return 0;
}

/// The verifier's own last words: the line before "processed N insns".
std::string verifier_refusal(std::string_view log) {
    const size_t end = log.rfind("\nprocessed ");
    if (end == std::string_view::npos) return {};
    const size_t start = log.rfind('\n', end - 1);
    return std::string(log.substr(start + 1, end - start - 1));
}

/// Whether libbpf met this errno on its way; what it returns in the end may be that of something that failed for it.
bool has_met(int error_number) {
    return collected_text().find(errno_text(error_number)) != std::string::npos;
}

/// The kernel has its types, and still libbpf could not read them.
bool lacks_memory_for_types() {
    return collected_text().find("failed to find valid kernel BTF") != std::string::npos &&
           access("/sys/kernel/btf/vmlinux", R_OK) == 0;
}

}  // namespace

LoadLog::LoadLog() {
    collected_text().clear();
    libbpf_set_print(collect);
}

LoadLog::~LoadLog() {
    libbpf_set_print(nullptr);
}

Error LoadLog::explain(int error_number) const {
    const std::string what = "cannot load the BPF programs";
    if (error_number == EPERM || error_number == EACCES) {
        const std::string refusal = verifier_refusal(collected_text());
        if (refusal.empty())
            return {what, reason_of_refusal(std::array{Capability::bpf, Capability::perfmon}), privilege_hint(),
                    ExitStatus::not_privileged};
        return {what, "the kernel's verifier refused them: " + refusal, "", ExitStatus::kernel_lacks_feature};
    }
    if (error_number == EMFILE || has_met(EMFILE))
        return {what, errno_text(EMFILE), "raise the limit of open files (ulimit -n)", ExitStatus::failure};
    if (lacks_memory_for_types())
        return {what, "the types of the kernel cannot be read", "raise the limit of memory (ulimit -v)",
                ExitStatus::failure};
    if (error_number == ENOMEM || has_met(ENOMEM))
        return {what, "not enough memory for the tables", "lower --max-live-blocks or --max-sites",
                ExitStatus::failure};
    if (error_number == E2BIG || error_number == EINVAL || error_number == ENOENT || error_number == ESRCH ||
        error_number == ENOTSUP || error_number == ENOSYS) {
        const std::string refusal = verifier_refusal(collected_text());
        return {what, refusal.empty() ? errno_text(error_number) : refusal,
                "memtrace needs Linux 6.1 or newer with BPF and BTF", ExitStatus::kernel_lacks_feature};
    }
    return {what, errno_text(error_number), "", ExitStatus::failure};
}

}  // namespace memtrace
