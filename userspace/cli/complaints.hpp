// What is wrong in a command line, in the house's form.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"

namespace memtrace {

inline Error usage_error(std::string what, std::string why, std::string hint) {
    return Error{std::move(what), std::move(why), std::move(hint), ExitStatus::usage};
}

/// From CLI11's sentence, in which the option's name comes first, with or without its dashes.
inline Error option_error(std::string_view sentence) {
    const std::string name(sentence.substr(0, sentence.find_first_of(": ")));
    const std::string why = sentence.ends_with("missing")    ? "its value is missing"
                            : sentence.ends_with("override") ? "takes no value"
                                                             : "given twice";
    return usage_error(name.starts_with('-') ? name : "--" + name, why, "memtrace --help shows how it is written");
}

}  // namespace memtrace
