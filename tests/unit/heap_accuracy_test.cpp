#include "heap/accuracy.hpp"

#include "catch.hpp"

using namespace memtrace;

namespace {

Accuracy with_counter(mt_counter counter, uint64_t count) {
    AddressSpace space;
    space.counters[counter] = count;
    return accuracy_of(space);
}

}  // namespace

TEST_CASE("each loss has its figure, its reason and, where there is one, its option", "[heap]") {
    struct Case {
        mt_counter counter;
        uint64_t (*figure)(const Accuracy&);
        std::string_view way_out;
    };
    const Case cases[] = {
        {MT_COUNT_BLOCKS_LIVE_TABLE_FULL, [](const Accuracy& a) { return a.blocks_not_recorded(); },
         "raise --max-live-blocks"},
        {MT_COUNT_BLOCKS_CALLS_FULL, [](const Accuracy& a) { return a.blocks_not_recorded(); }, ""},
        {MT_COUNT_STACKS_SITES_FULL, [](const Accuracy& a) { return a.stacks_not_recorded(); }, "raise --max-sites"},
        {MT_COUNT_STACKS_RING_FULL, [](const Accuracy& a) { return a.stacks_not_recorded(); }, "raise --ring-size"},
        {MT_COUNT_EVENTS_RING_FULL, [](const Accuracy& a) { return a.events_lost(); }, "raise --ring-size"},
        {MT_COUNT_MAPPINGS_RING_FULL, [](const Accuracy& a) { return a.events_lost(); }, "raise --ring-size"},
        {MT_COUNT_RETURNS_MISSED, [](const Accuracy& a) { return a.returns_missed; }, ""},
        {MT_COUNT_FREES_MISSED, [](const Accuracy& a) { return a.frees_missed; }, ""},
        {MT_COUNT_REALLOCS_UNRESOLVED, [](const Accuracy& a) { return a.reallocs_unresolved; }, ""},
        {MT_COUNT_INHERITED_LOST, [](const Accuracy& a) { return a.inherited_lost; }, "raise --max-live-blocks"},
        {MT_COUNT_BLOCKS_QUOTA, [](const Accuracy& a) { return a.blocks_not_recorded(); },
         "raise --max-process-blocks"},
        {MT_COUNT_STACKS_QUOTA, [](const Accuracy& a) { return a.stacks_not_recorded(); }, "raise --max-process-sites"},
    };
    for (const Case& one : cases) {
        const Accuracy accuracy = with_counter(one.counter, 3);
        CHECK(one.figure(accuracy) == 3);
        CHECK_FALSE(accuracy.is_complete());
        REQUIRE(accuracy.losses().size() == 1);
        CHECK(accuracy.losses()[0].count == 3);
        CHECK_FALSE(accuracy.losses()[0].reason.empty());
        CHECK(accuracy.losses()[0].way_out == one.way_out);
    }
}

TEST_CASE("figures that inform do not touch completeness", "[heap]") {
    for (const mt_counter counter :
         {MT_COUNT_UNKNOWN_FREES, MT_COUNT_CALLS_ABANDONED, MT_COUNT_CALLS_SUPPRESSED, MT_COUNT_STACKS_TRUNCATED,
          MT_COUNT_BLOCKS_FILTERED, MT_COUNT_CHILDREN_NOT_SEEN, MT_COUNT_TYPES_FULL}) {
        const Accuracy accuracy = with_counter(counter, 5);
        CHECK(accuracy.is_complete());
        CHECK(accuracy.unknown_frees + accuracy.calls_abandoned + accuracy.calls_suppressed +
                  accuracy.stacks_truncated + accuracy.blocks_filtered + accuracy.children_not_seen +
                  accuracy.types_not_recorded ==
              5);
    }
}

TEST_CASE("records of the side band that the user side missed are lost events", "[heap]") {
    Accuracy accuracy = with_counter(MT_COUNT_EVENTS_RING_FULL, 2);
    accuracy.events_side_band_lost = 4;
    CHECK(accuracy.events_lost() == 6);
    CHECK(accuracy.losses().size() == 2);
}

TEST_CASE("accuracy figures add up, counter by counter", "[heap]") {
    Accuracy sum;
    for (int counter = 0; counter <= MT_COUNT_STACKS_QUOTA; ++counter)
        sum += with_counter(static_cast<mt_counter>(counter), uint64_t{1} << counter);
    CHECK(sum.blocks_not_recorded() == 1 + 2 + 32768);
    CHECK(sum.stacks_not_recorded() == 4 + 8 + 65536);
    CHECK(sum.events_lost() == 16);
    CHECK(sum.returns_missed == 32);
    CHECK(sum.frees_missed == 64);
    CHECK(sum.reallocs_unresolved == 128);
    CHECK(sum.inherited_lost == 16384);
    CHECK(sum.unknown_frees == 256);
    CHECK(sum.calls_abandoned == 512);
    CHECK(sum.calls_suppressed == 1024);
    CHECK(sum.stacks_truncated == 2048);
    CHECK(sum.blocks_filtered == 4096);
    CHECK(sum.children_not_seen == 8192);
}
