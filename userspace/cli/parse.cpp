#include "cli/parse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "base/units.hpp"
#include "cli/census_options.hpp"
#include "cli/choices.hpp"
#include "cli/help.hpp"
#include "cli/subcommands.hpp"
#include "cli/type_options.hpp"
#include "cli/usage_errors.hpp"
#include "cli/values.hpp"
#include "memtrace/abi.h"

namespace memtrace {
namespace {

template <typename Choices>
auto choice_of(const Choices& choices) {
    return [&choices](const std::string& text) { return parse_choice(text, choices); };
}

/// One command line. CLI11 hands over text; values are made and checked here: every complaint has the house's form.
class CommandLine {
  public:
    CommandLine();
    Result<Request> read(std::span<const char* const> arguments, const SameProgram& same_program);

  private:
    void add_report_times();
    void add_targets();
    void add_report_options();
    void add_kernel_options();
    void add_allocator_options();
    void add_output_options();
    void add_commands();
    CLI::App* add_command(const char* name, const char* description, const std::string& usage);
    std::function<void(const std::vector<std::string>&)> pid_taker();
    CLI::Option* add_flag(const char* names, bool& target, const char* description, bool value = true);
    /// `parse`: text -> Result; its value is stored in `target`.
    template <typename Target, typename Parse>
    CLI::Option* add_value(const char* names, const char* placeholder, Target& target, Parse parse,
                           const char* description);
    /// An option that is written once for each of its values, which `add` takes.
    template <typename Add>
    CLI::Option* add_values(const char* names, const char* placeholder, Add add, const char* description);
    void complain(const std::string& name, const Error& error);

    /// The text of --help or --version, or nothing.
    Result<std::optional<ShowText>> read_options(std::vector<std::string> arguments);
    Result<Request> checked();
    Result<Request> checked_census();
    Result<Request> checked_command();
    /// Gives the file of --obj to the functions that name none.
    Result<void> finish_user_functions();

    CLI::App app_{"Shows which call sites of running programs hold heap memory.", "memtrace"};
    CensusOptions census_{app_};
    std::optional<TypeOptions> types_;
    CLI::App* list_ = nullptr;
    CLI::App* doctor_ = nullptr;
    CLI::App* selftest_ = nullptr;
    Options options_;
    std::string interval_text_;
    std::string object_path_;
    bool lists_placement_ = false;
    std::optional<Error> complaint_;
};

CommandLine::CommandLine() {
    app_.formatter(std::make_shared<HelpFormatter>(std::string(main_usage)));
    app_.set_help_flag();  // added last, since --help shows options in this order
    app_.allow_extras();
    add_report_times();
    add_targets();
    add_report_options();
    types_.emplace(app_, options_);
    add_kernel_options();
    add_allocator_options();
    add_output_options();
    app_.set_help_flag("-h,--help", "this text")->group("Output");
    app_.set_version_flag("--version", "memtrace " MEMTRACE_VERSION "\n", "the version")->group("Output");
    add_commands();
}

void CommandLine::add_commands() {
    list_ = app_.add_subcommand("list", "the allocator functions that memtrace knows");
    list_->group("Commands");
    list_->allow_extras();
    list_->formatter(std::make_shared<HelpFormatter>("\nUsage:\n  memtrace list [--placement -p PID]\n\n"));
    list_->add_flag("--placement", lists_placement_, "where probes would go in a process, and what each costs");
    list_->add_option_function<std::vector<std::string>>("-p,--pid", pid_taker(), "of which processes")
        ->allow_extra_args(false)
        ->option_text("PID[,PID...]");
    list_->set_help_flag("-h,--help", "this text");
    doctor_ =
        add_command("doctor", "whether tracing will work here, and on a process", "memtrace doctor [-p PID] [OPTIONS]");
    selftest_ =
        add_command("selftest", "traces a program of known truth, and compares", "memtrace selftest [--attach HOW]");
}

/// One that takes the options of tracing, on either side of its name.
CLI::App* CommandLine::add_command(const char* name, const char* description, const std::string& usage) {
    CLI::App* command = app_.add_subcommand(name, description);
    command->group("Commands");
    command->allow_extras();
    command->fallthrough();
    command->formatter(std::make_shared<HelpFormatter>("\nUsage:\n  " + usage + "\n\n"));
    command->set_help_flag("-h,--help", "this text");
    return command;
}

void CommandLine::complain(const std::string& name, const Error& error) {
    if (complaint_) return;
    complaint_ = error;
    complaint_->what = name + " " + error.what;
}

CLI::Option* CommandLine::add_flag(const char* names, bool& target, const char* description, bool value) {
    auto set = [&target, value](int64_t) { target = value; };
    return app_.add_flag_function(names, set, description)->disable_flag_override();
}

template <typename Target, typename Parse>
CLI::Option* CommandLine::add_value(const char* names, const char* placeholder, Target& target, Parse parse,
                                    const char* description) {
    const std::string_view name = std::string_view(names).substr(std::string_view(names).find(',') + 1);
    auto store = [this, &target, parse, name = std::string(name)](const std::string& text) {
        auto value = parse(text);
        if (!value) return complain(name, value.error());
        target = Target(std::move(*value));
    };
    CLI::Option* option = app_.add_option_function<std::string>(names, store, description);
    option->option_text(placeholder)->take_last();
    return option;
}

template <typename Add>
CLI::Option* CommandLine::add_values(const char* names, const char* placeholder, Add add, const char* description) {
    const std::string_view name = std::string_view(names).substr(std::string_view(names).find(',') + 1);
    auto add_all = [this, add, name = std::string(name)](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) {
            const Result<void> outcome = add(text);
            if (!outcome) complain(name, outcome.error());
        }
    };
    CLI::Option* option = app_.add_option_function<std::vector<std::string>>(names, add_all, description);
    return option->allow_extra_args(false)->option_text(placeholder);
}

void CommandLine::add_report_times() {
    auto parse_interval_text = [this](const std::string& text) {
        interval_text_ = text;
        return parse_interval(text);
    };
    add_value("INTERVAL", "", options_.interval_ns, parse_interval_text, "between two reports: 10, 500ms, 5m (5)");
    auto parse_count = [](const std::string& text) {
        return parse_number(text, 1, std::numeric_limits<uint64_t>::max());
    };
    add_value("COUNT", "", options_.count, parse_count, "reports, then the end");
}

std::function<void(const std::vector<std::string>&)> CommandLine::pid_taker() {
    return [this](const std::vector<std::string>& texts) {
        // Joined, so that a pid that is given twice in two options is one target.
        Result<std::vector<pid_t>> pids = parse_pids(CLI::detail::join(texts, ","));
        if (!pids) return complain("--pid", pids.error());
        options_.pids = std::move(*pids);
    };
}

void CommandLine::add_targets() {
    const std::string group = "Targets";
    // CLI11's vector options go on into the positionals unless extra arguments are forbidden.
    app_.add_option_function<std::vector<std::string>>("-p,--pid", pid_taker(), "these: -p 12,34 or -p $(pidof NAME)")
        ->allow_extra_args(false)
        ->option_text("PID[,PID...]")
        ->group(group);
    auto add_once = [](std::vector<std::string>& texts, std::string_view what) {
        return [&texts, what](const std::string& text) { return add_target(texts, text, what); };
    };
    add_values("-x,--exe", "NAME|PATH", add_once(options_.executables, "program"), "all that run it, later ones too")
        ->group(group);
    add_flag("-f,--follow", options_.follows_children, "all descendants of the others, later ones too")->group(group);
    add_values("--cgroup", "PATH", add_once(options_.cgroups, "cgroup"), "all in a cgroup, later ones too")
        ->group(group);
    add_values("--container", "ID", add_once(options_.containers, "container"), "... in a container, by id or name")
        ->group(group);
    add_flag("-A,--all", options_.traces_all, "all of the system, later ones too")->group(group);
    add_value(
        "-c,--command", "'CMD ARGS'", options_.command, [](const std::string& text) { return split_command(text); },
        "start this command; ' \" \\ quote, no shell")
        ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
        ->group(group);
    add_flag("--from-birth", options_.is_from_birth, "miss nothing of later ones; all others pay")->group(group);
    add_flag("--dry-run", options_.is_dry_run, "show every probe that would be set, set none")->group(group);
    add_flag("--no-wait", options_.waits_for_targets, "status 3 if something matches no process yet", false)
        ->group(group);
}

void CommandLine::add_report_options() {
    auto parse_age = [](const std::string& text) -> Result<uint64_t> {
        Result<uint64_t> age_ns = parse_duration(text, 1'000'000);
        if (age_ns) return age_ns;
        return usage_error(age_ns.error().what, "not an age", "write 500 (ms), 10s or 5m; a file is --output FILE");
    };
    auto parse_top = [](const std::string& text) {
        return parse_number(text, 0, std::numeric_limits<uint32_t>::max());
    };
    const std::string group = "What is shown";
    add_value("-o,--older", "MS", options_.older_ns, parse_age, "only blocks at least so old: 500, 10s, 5m")
        ->group(group);
    add_value("-T,--top", "N", options_.top, parse_top, "call sites of each kind (10; 0: all)")->group(group);
    add_value("--sort", "KEY", options_.sort, choice_of(sort_orders), "live, count, growth, age or rate (live)")
        ->group(group);
    add_value("--by", "WHAT", options_.by, choice_of(report_scopes), "a report per process, tree, exe, cgroup, or all")
        ->group(group);
    add_flag("-a,--show-allocs", options_.shows_blocks, "each live block too")->group(group);
    add_flag("--resident", options_.shows_resident, "how much of the live blocks is in memory")->group(group);
    add_flag("-t,--trace", options_.traces_events, "each allocation and free too")->group(group);
}

void CommandLine::add_kernel_options() {
    const std::string group = "What is recorded";
    auto parse_bytes = [](const std::string& text) { return parse_size(text); };
    auto parse_up_to = [](uint64_t limit) {
        return [limit](const std::string& text) { return parse_number(text, 1, limit); };
    };
    add_value("-z,--min-size", "SIZE", options_.min_size_bytes, parse_bytes, "only blocks of at least SIZE: 100, 64K")
        ->group(group);
    add_value("-Z,--max-size", "SIZE", options_.max_size_bytes, parse_bytes, "only blocks of at most SIZE")
        ->group(group);
    add_value("--sample", "SIZE", options_.sample_bytes, parse_sampling_mean,
              "one byte of SIZE: estimates, but cheap: 512K")
        ->group(group);
    add_value("--max-overhead", "SHARE", options_.max_overhead, parse_share, "of a core, as 5%: it samples, then ends")
        ->group(group);
    add_flag("--no-forecast", options_.predicts_cost, "start at once, do not count calls before", false)->group(group);
    add_value("--attach", "HOW", options_.attach, choice_of(attach_choices),
              "session, multi or perf (the first that works)")
        ->group(group);
    add_value("--max-stack", "N", options_.max_stack_frames, parse_up_to(MT_MAX_FRAMES), "frames of a stack (127)")
        ->group(group);
    add_value("--max-live-blocks", "N", options_.max_live_blocks, parse_up_to(max_live_blocks_limit),
              "blocks alive at once (1048576)")
        ->group(group);
    add_value("--max-sites", "N", options_.max_sites, parse_up_to(max_sites_limit),
              "call sites (131072, with -A 524288)")
        ->group(group);
    add_value("--max-process-blocks", "N", options_.max_process_blocks, parse_up_to(max_live_blocks_limit),
              "of one process (half of all)")
        ->group(group);
    add_value("--max-process-sites", "N", options_.max_process_sites, parse_up_to(max_sites_limit),
              "of one process (half of all)")
        ->group(group);
    add_value(
        "--ring-size", "SIZE", options_.ring_size_bytes, [](const std::string& text) { return parse_ring_size(text); },
        "buffer of stacks and events (8M, with -A 32M)")
        ->group(group);
}

void CommandLine::add_allocator_options() {
    const std::string group = "Allocators";
    add_flag("--system-calls", options_.sees_system_calls, "mmap, brk ... made without libc's functions too")
        ->group(group);
    auto add_prefix = [this](const std::string& text) -> Result<void> {
        Result<void> outcome = check_symbol(text);
        if (outcome) options_.symbol_prefixes.push_back(text);
        return outcome;
    };
    auto add_function = [this](UserFunctionKind kind) {
        return [this, kind](const std::string& text) -> Result<void> {
            Result<UserFunction> function = parse_user_function(text, kind);
            if (!function) return function.error();
            options_.user_functions.push_back(std::move(*function));
            return {};
        };
    };
    add_values("-S,--symbols-prefix", "P", add_prefix, "malloc may also be called Pmalloc: je_")->group(group);
    add_values("--alloc", "SYMBOL[:...]", add_function(UserFunctionKind::allocates),
               "a function of yours: pool_get:size=arg1")
        ->group(group);
    add_values("--free", "SYMBOL[:...]", add_function(UserFunctionKind::frees),
               "... that gives back: pool_put:ptr=arg0")
        ->group(group);
    add_value("-O,--obj", "FILE", object_path_, parse_path, "the file of --alloc and --free that name none")
        ->group(group);
    add_value("--allocators", "FILE", options_.allocators_path, parse_path, "functions, as memtrace list prints them")
        ->group(group);
}

void CommandLine::add_output_options() {
    const std::string group = "Output";
    add_value("--format", "FORMAT", options_.format, choice_of(output_formats), "text or json (text)")->group(group);
    add_value("--output", "FILE", options_.output_path, parse_path, "reports go to FILE (stdout)")->group(group);
    add_value("--color", "WHEN", options_.color, choice_of(color_choices), "auto, always or never (auto)")
        ->group(group);
    add_flag("-q,--quiet", options_.is_quiet, "errors and warnings only on stderr")->group(group);
    add_flag("--strict", options_.is_strict, "status 1 when anything was not recorded")->group(group);
}

Result<Request> CommandLine::read(std::span<const char* const> arguments, const SameProgram& same_program) {
    // CLI11 would hand what follows `--` to the positionals.
    const auto separator =
        std::find_if(arguments.begin(), arguments.end(), [](std::string_view text) { return text == "--"; });
    const auto option_count = static_cast<size_t>(separator - arguments.begin());
    Result<std::vector<std::string>> options = join_pids(arguments.first(option_count), same_program);
    if (!options) return options.error();
    const Result<std::optional<ShowText>> text = read_options(std::move(*options));
    if (!text) return text.error();
    if (*text) return Request(**text);
    if (separator == arguments.end()) return checked();
    const auto command = arguments.subspan(option_count + 1);
    if (command.empty()) return usage_error("--", "no command follows", "write memtrace -- COMMAND [ARG...]");
    if (!options_.command.empty())
        return usage_error("--command", "a second command follows --", "give one of the two");
    options_.command.assign(command.begin(), command.end());
    return checked();
}

Result<std::optional<ShowText>> CommandLine::read_options(std::vector<std::string> arguments) {
    try {
        std::reverse(arguments.begin(), arguments.end());
        app_.parse(std::move(arguments));
        return std::optional<ShowText>();
    } catch (const CLI::CallForHelp&) {
        return std::optional(ShowText{app_.help()});
    } catch (const CLI::CallForVersion& version) {
        return std::optional(ShowText{version.what()});
    } catch (const CLI::ParseError& error) {
        return option_error(error.what());
    }
}

Result<void> CommandLine::finish_user_functions() {
    std::vector<UserFunction>& functions = options_.user_functions;
    if (!object_path_.empty() && functions.empty())
        return usage_error("--obj", "no function of it is named", "name them: --alloc SYMBOL --free SYMBOL");
    for (UserFunction& function : functions)
        if (function.file.empty()) function.file = object_path_;
    if (const UserFunction* repeated = find_repeated(functions); repeated != nullptr)
        return usage_error(fmt::format("'{}'", repeated->symbol), "named twice by --alloc and --free",
                           "leave one out, or say of which file each is: FILE:SYMBOL");
    if (functions.size() > max_user_functions())
        return usage_error("--alloc", fmt::format("there is room for {} functions", max_user_functions()),
                           "leave out what the targets do not call");
    return {};
}

/// What stands beside the name of a command is given by the names of the options, without their dashes.
Result<Request> CommandLine::checked_census() {
    if (app_.parse_order().empty() && options_.command.empty()) return census_.checked();
    return usage_error("census", "takes no options of a session", "write memtrace census PID");
}

Result<Request> CommandLine::checked_command() {
    std::vector<std::string> given;
    for (const CLI::Option* option : app_.parse_order())
        given.push_back(option->get_single_name());
    if (!options_.command.empty()) given.emplace_back("command");
    if (selftest_->parsed()) return selftest_request(options_, given);
    if (doctor_->parsed()) return doctor_request(std::move(options_), given);
    return list_request(options_, lists_placement_, given);
}

Result<Request> CommandLine::checked() {
    const std::vector<std::string> extras = app_.remaining(true);
    if (!extras.empty() && extras.front().starts_with('-'))
        return usage_error(fmt::format("'{}'", extras.front()), "no such option", "memtrace --help lists them");
    if (!extras.empty())
        return usage_error(fmt::format("'{}'", extras.front()), "one argument too many",
                           "write several processes as -p 12,34 and a command after --");
    if (complaint_) return *complaint_;
    if (const Result<void> outcome = finish_user_functions(); !outcome) return outcome.error();
    if (census_.is_asked_for()) return checked_census();
    if (list_->parsed() || doctor_->parsed() || selftest_->parsed()) return checked_command();
    if (const Result<void> outcome = types_->check(options_); !outcome) return outcome.error();
    if (options_.min_size_bytes > options_.max_size_bytes)
        return usage_error("--min-size", "above --max-size, so nothing would be recorded", "swap the two");
    if (!options_.has_targets()) return no_target_error(options_, interval_text_);
    if (options_.is_from_birth && !options_.has_future_targets())
        return usage_error("--from-birth", "no target can start later", "add -f, -x NAME, --cgroup PATH or -A");
    return Request(std::move(options_));
}

}  // namespace

Result<Request> parse_arguments(std::span<const char* const> arguments, const SameProgram& same_program) {
    return CommandLine().read(arguments, same_program);
}

}  // namespace memtrace
