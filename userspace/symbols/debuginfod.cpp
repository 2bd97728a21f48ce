#include "symbols/debuginfod.hpp"

#include <dlfcn.h>
#include <elfutils/debuginfod.h>

#include <cerrno>
#include <cstdlib>

#include "base/log.hpp"
#include "base/result.hpp"

namespace memtrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int default_patience_seconds = 10;
constexpr int most_patience_seconds = 3600;

bool is_set(const char* variable) {
    const char* value = ::getenv(variable);
    return value && *value;
}

std::chrono::milliseconds patience_of_environment() {
    const char* text = ::getenv(DEBUGINFOD_TIMEOUT_ENV_VAR);
    const long seconds = text ? std::strtol(text, nullptr, 10) : 0;
    return std::chrono::seconds(seconds > 0 && seconds < most_patience_seconds ? seconds : default_patience_seconds);
}

/// One question, as the client's progress function sees it.
struct Waiting {
    std::chrono::milliseconds patience{};
    Clock::time_point start;
    Clock::time_point last_progress;
    long size_bytes = 0;
    bool is_too_long = false;
};

/// A function of libdebuginfod; null where the library is not installed. Never unloaded, because libcurl keeps state of
/// the process.
template <typename Function>
Function* library_function(const char* name) {
    void* library = ::dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
    return library ? reinterpret_cast<Function*>(::dlsym(library, name)) : nullptr;
}

/// libdebuginfod calls it several times a second; not 0 ends the question. `whole_bytes` is 0 until a server answers.
int watch(debuginfod_client* client, long size_bytes, long whole_bytes) {
    auto* get_data = library_function<decltype(::debuginfod_get_user_data)>("debuginfod_get_user_data");
    auto& waiting = *static_cast<Waiting*>(get_data(client));
    const auto now = Clock::now();
    if (whole_bytes > 0 && size_bytes > waiting.size_bytes) {
        waiting.size_bytes = size_bytes;
        waiting.last_progress = now;
    }
    waiting.is_too_long = now - waiting.last_progress > waiting.patience || now - waiting.start > 6 * waiting.patience;
    return waiting.is_too_long ? 1 : 0;
}

}  // namespace

struct Debuginfod::Library {
    bool load() {
        begin = library_function<decltype(::debuginfod_begin)>("debuginfod_begin");
        end = library_function<decltype(::debuginfod_end)>("debuginfod_end");
        find = library_function<decltype(::debuginfod_find_debuginfo)>("debuginfod_find_debuginfo");
        set_progress = library_function<decltype(::debuginfod_set_progressfn)>("debuginfod_set_progressfn");
        set_data = library_function<decltype(::debuginfod_set_user_data)>("debuginfod_set_user_data");
        if (begin && end && find && set_progress && set_data) client = begin();
        return client != nullptr;
    }
    ~Library() {
        if (client) end(client);
    }

    decltype(&::debuginfod_begin) begin = nullptr;
    decltype(&::debuginfod_end) end = nullptr;
    decltype(&::debuginfod_find_debuginfo) find = nullptr;
    decltype(&::debuginfod_set_progressfn) set_progress = nullptr;
    decltype(&::debuginfod_set_user_data) set_data = nullptr;
    debuginfod_client* client = nullptr;
};

Debuginfod::Debuginfod() : Debuginfod(patience_of_environment()) {}
Debuginfod::Debuginfod(std::chrono::milliseconds patience) : patience_(patience) {}
Debuginfod::~Debuginfod() = default;

void Debuginfod::give_up(const std::string& why) {
    has_given_up_ = true;
    log_warning("debuginfod: " + why + "; names are missing where debug files are not on this host");
}

Fd Debuginfod::find(const std::string& build_id) {
    if (has_given_up_ || build_id.empty() || !is_set(DEBUGINFOD_URLS_ENV_VAR)) return Fd();
    if (!library_) {
        library_ = std::make_unique<Library>();
        if (!library_->load()) {
            give_up("DEBUGINFOD_URLS is set, but libdebuginfod.so.1 cannot be loaded (Debian package libdebuginfod1)");
            return Fd();
        }
    }
    const auto now = Clock::now();
    Waiting waiting{patience_, now, now};
    library_->set_data(library_->client, &waiting);
    library_->set_progress(library_->client, &watch);
    const auto* id = reinterpret_cast<const unsigned char*>(build_id.data());
    const int found = library_->find(library_->client, id, static_cast<int>(build_id.size()), nullptr);
    if (found >= 0) return Fd(found);
    if (waiting.is_too_long) give_up("no server of DEBUGINFOD_URLS answers in time (DEBUGINFOD_TIMEOUT)");
    if (!waiting.is_too_long && found != -ENOENT)
        give_up("no server of DEBUGINFOD_URLS answers: " + errno_text(-found));
    return Fd();
}

}  // namespace memtrace
