// The victim of `make demo`: answers requests from a made-up network in two threads, with honest churn all around and
// one leak, a cache of sessions from which nothing is ever removed. Ends by itself after ten minutes.
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

struct Session {
    uint64_t id = 0;
    char history[1500] = {};
};

class SessionCache {
  public:
    [[gnu::noinline]] void remember(uint64_t id) {
        auto* session = new Session{.id = id};
        const std::lock_guard guard(mutex_);
        sessions_[id] = session;
    }

  private:
    std::mutex mutex_;
    std::map<uint64_t, Session*> sessions_;
};

[[gnu::noinline]] std::vector<std::string> parse_headers(uint64_t id) {
    std::vector<std::string> headers;
    for (int line = 0; line < 8; ++line)
        headers.push_back("X-Header-" + std::to_string(line) + ": value of request " + std::to_string(id));
    return headers;
}

[[gnu::noinline]] std::string render_page(const std::vector<std::string>& headers) {
    std::string page = "<html>";
    for (const std::string& header : headers)
        page += "<p>" + header + "</p>";
    return page + "</html>";
}

[[gnu::noinline]] size_t handle_request(uint64_t id, SessionCache& cache) {
    const std::vector<std::string> headers = parse_headers(id);
    if (id % 10 == 0) cache.remember(id);
    return render_page(headers).size();
}

void serve(uint64_t first_id, SessionCache& cache) {
    const Clock::time_point end = Clock::now() + std::chrono::minutes(10);
    for (uint64_t id = first_id; Clock::now() < end; id += 2) {
        handle_request(id, cache);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

int main() {
    SessionCache cache;
    std::thread second(serve, 1, std::ref(cache));
    serve(0, cache);
    second.join();
}
