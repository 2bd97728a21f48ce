// What the bench lets clang compile.
#include <map>
#include <regex>
#include <string>

std::map<std::string, int> count_words(const std::string& text) {
    static const std::regex word("[a-z]+|[0-9]+(\\.[0-9]*)?");
    std::map<std::string, int> counts;
    for (std::sregex_iterator next(text.begin(), text.end(), word), end; next != end; ++next)
        ++counts[next->str()];
    return counts;
}
