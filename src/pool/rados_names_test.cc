#include "pool/rados_names.h"

#include <gtest/gtest.h>

#include "pool/rados_cluster.h"
#include "pool/rados_probe.h"

namespace fathom {
namespace {

TEST(RadosNames, NumbersSortAsTheyCountAndComeBack) {
    const std::uint64_t numbers[] = {0, 9, 10, 4095, 1'750'000'000'123, UINT64_MAX};
    for (std::size_t i = 0; i < std::size(numbers); ++i) {
        const std::string text = rados_number(numbers[i]);
        EXPECT_EQ(parse_rados_number(text), numbers[i]);
        if (i > 0) {
            EXPECT_LT(rados_number(numbers[i - 1]), text);
        }
    }
    for (const char* text : {"", "12", "000000000000000g", "0000000000000010 ", "00000000000000AB"})
        EXPECT_EQ(parse_rados_number(text), std::nullopt) << text;
}

TEST(RadosNames, NamesOfListsComeBackAndOthersAreNone) {
    const RadosListName name{.expiry_unix_ms = 1'750'000'000'123,
                             .traffic_class = TrafficClass::chatbot,
                             .writer = 0xfeed,
                             .number = 3};
    const std::string object = rados_list_object(name);
    EXPECT_EQ(parse_rados_list_object(object), name);
    EXPECT_EQ(rados_list_set_of(name), "lists.d");
    RadosListName later = name;
    later.expiry_unix_ms += 1;
    later.writer = 0;
    EXPECT_LT(object, rados_list_object(later));
    for (std::size_t i = 0; i < object.size(); ++i) {
        std::string other = object;
        other[i] = 'z';
        EXPECT_EQ(parse_rados_list_object(other), std::nullopt) << other;
        EXPECT_EQ(parse_rados_list_object(object.substr(0, i)), std::nullopt);
    }
}

TEST(RadosNames, DamagedAndPartialEntriesAreLeftOut) {
    std::vector<std::uint8_t> bytes;
    std::vector<RadosEntry> entries(5);
    for (std::size_t i = 0; i < entries.size(); ++i) {
        entries[i].key.bytes.fill(static_cast<std::uint8_t>(i));
        entries[i].ns_tag = i;
        append_rados_entry(bytes, entries[i]);
    }
    EXPECT_EQ(static_cast<std::int64_t>(bytes.size()), 5 * kRadosEntryBytes);
    EXPECT_EQ(read_rados_entries(bytes), entries);
    bytes[60] ^= 1;
    bytes.resize(bytes.size() - 1);
    EXPECT_EQ(read_rados_entries(bytes),
              (std::vector<RadosEntry>{entries[0], entries[2], entries[3]}));
}

TEST(RadosProbe, APlacementGroupWithTooFewDevicesHasStopped) {
    const char* map = R"({"pgid":"1.5","acting":[0,2147483647,2,3,2147483647,4]})";
    EXPECT_EQ(stopped_placement_group(map, 4), "");
    EXPECT_EQ(stopped_placement_group(map, 5).find("placement group 1.5 has 4 of the 5 devices"),
              0u);
    for (const char* text : {"", "[]", "{", R"({"acting":3})", R"({"pgid":1,"acting":["a"]})"})
        (void)stopped_placement_group(text, 5);
    EXPECT_EQ(stopped_placement_group("nonsense", 5), "");
}

TEST(RadosAnswer, HasAttributesByName) {
    RadosAnswer answer;
    answer.attributes = {{"end", "1"}, {"ns", ""}};
    EXPECT_EQ(*answer.attribute("end"), "1");
    EXPECT_EQ(*answer.attribute("ns"), "");
    EXPECT_EQ(answer.attribute("en"), nullptr);
}

}  // namespace
}  // namespace fathom
