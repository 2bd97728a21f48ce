// The text of the doctor's list of features.
#include "catch.hpp"
#include "cli/doctor_command.hpp"

using namespace memtrace;

TEST_CASE("a feature is there, is not, or could not be asked for", "[cli][doctor]") {
    const std::string text = features_text({{"one", "buys this", FeatureState::present, true},
                                            {"two", "buys that", FeatureState::missing, false},
                                            {"three", "buys more", FeatureState::not_permitted, false}});
    CHECK(text ==
          "  yes  one                            buys this; needed\n"
          "  no   two                            buys that\n"
          "  ?    three                          buys more\n");
}
