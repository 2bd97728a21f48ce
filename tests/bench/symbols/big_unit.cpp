// One of the translation units of the big file of symbols_bench: UNIT makes its types different from all others'.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr int kinds_per_unit = 24;

template <int N>
struct Key {
    int number = N;
    std::string text;
    bool operator<(const Key& other) const { return number < other.number || text < other.text; }
    bool operator==(const Key& other) const = default;
};

template <int N>
struct Hash {
    size_t operator()(const Key<N>& key) const { return std::hash<std::string>()(key.text) ^ N; }
};

template <int N>
size_t work(const std::string& seed) {
    std::map<Key<N>, std::vector<Key<N>>> tree;
    std::unordered_map<Key<N>, std::shared_ptr<Key<N>>, Hash<N>> table;
    std::function<size_t(const Key<N>&)> weigh = [&](const Key<N>& key) { return key.text.size() + tree.size(); };
    for (int i = 0; i < N % 97; ++i) {
        Key<N> key{i, seed + std::to_string(i)};
        tree[key].push_back(key);
        table.emplace(key, std::make_shared<Key<N>>(key));
    }
    std::vector<Key<N>> all;
    for (const auto& [key, values] : tree)
        all.insert(all.end(), values.begin(), values.end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& left, const auto& right) { return left.text < right.text; });
    return std::accumulate(all.begin(), all.end(), table.size(),
                           [&](size_t sum, const Key<N>& key) { return sum + weigh(key); });
}

template <int... Kinds>
size_t work_all(const std::string& seed, std::integer_sequence<int, Kinds...>) {
    return (work<UNIT * 1000 + Kinds>(seed) + ...);
}

}  // namespace

#define JOINED(left, right) left##right
#define NAMED(left, right) JOINED(left, right)

size_t NAMED(unit_, UNIT)(const std::string& seed) {
    return work_all(seed, std::make_integer_sequence<int, kinds_per_unit>());
}
