// Capabilities of a child process: what is missing is named, and what is given up is gone.
#include "base/capabilities.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "catch.hpp"

using namespace memtrace;

namespace {

/// The status of a child that ends with what `body` returns.
int in_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

constexpr std::array some = {Capability::bpf, Capability::perfmon, Capability::sys_admin};

}  // namespace

TEST_CASE("without capabilities all that are wanted are missing, by name", "[base][capabilities]") {
    CHECK(in_child([] {
              if (!keep_only({})) return 1;
              if (missing_capabilities(some) != "cap_bpf, cap_perfmon and cap_sys_admin") return 2;
              if (reason_of_refusal(some) != "not privileged: cap_bpf, cap_perfmon and cap_sys_admin are missing")
                  return 3;
              if (reason_of_refusal(std::array{Capability::bpf}) != "not privileged: cap_bpf is missing") return 4;
              if (::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 5;
              return 0;
          }) == 0);
}

TEST_CASE("what is kept stays, and nothing is gained", "[base][capabilities]") {
    const bool has_bpf = has_capability(Capability::bpf);
    const int status = in_child([&] {
        if (!keep_only(std::array{Capability::bpf})) return 1;
        if (has_capability(Capability::bpf) != has_bpf) return 2;
        if (has_capability(Capability::sys_admin)) return 3;
        if (!keep_only(std::array{Capability::bpf, Capability::sys_admin})) return 4;
        return has_capability(Capability::sys_admin) ? 5 : 0;
    });
    CHECK(status == 0);
}

TEST_CASE("a refusal without a missing capability says what else it can be", "[base][capabilities]") {
    CHECK_THAT(reason_of_refusal({}), ContainsSubstring("though no capability is missing"));
    CHECK(missing_capabilities({}).empty());
}
