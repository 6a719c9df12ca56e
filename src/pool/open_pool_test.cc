// A pool as a process opens it: what is refused and how, and what is said.
#include "pool/open_pool.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "pool/testing/embedded_rig.h"

namespace fathom {
namespace {

using namespace fathom::testing;
namespace fs = std::filesystem;

constexpr std::int64_t kPayload = 10'000;

class OpenPools : public ::testing::Test {
  protected:
    OpenPoolOptions options() const {
        OpenPoolOptions options;
        options.store = "embedded";
        options.directory = dir();
        options.payload_bytes = kPayload;
        options.capacity_bytes = std::int64_t{1} << 30;
        options.tier.staging_bytes = 1 << 20;
        return options;
    }
    std::string dir() const { return folder_.path() + "/pool"; }
    // Opens and closes it; what was logged meanwhile.
    std::string logged(const OpenPoolOptions& with) {
        MetricsRegistry metrics;
        ::testing::internal::CaptureStderr();
        const Status status = OpenPool::open(with, real_clock(), metrics).status();
        std::string text = ::testing::internal::GetCapturedStderr();
        EXPECT_TRUE(status.ok()) << status.message();
        return text;
    }
    static std::string refused(const OpenPoolOptions& with) {
        MetricsRegistry metrics;
        const auto pool = OpenPool::open(with, real_clock(), metrics);
        EXPECT_FALSE(pool.ok());
        return pool.ok() ? "" : pool.status().message();
    }
    static bool has(const std::string& text, const std::string& part) {
        return text.find(part) != std::string::npos;
    }

    const TemporaryFolder folder_;
};

TEST_F(OpenPools, ALostSecretIsMadeAnewAndSaid) {
    EXPECT_FALSE(has(logged(options()), "SECRET"));  // a new pool
    EXPECT_FALSE(has(logged(options()), "SECRET"));
    const std::string path = dir() + "/SECRET";
    std::string before(32, '\0'), after(32, '\0');
    std::ifstream(path).read(before.data(), 32);
    fs::remove(path);
    EXPECT_TRUE(has(logged(options()), path + ": was not there and is made anew"));
    std::ifstream(path).read(after.data(), 32);
    EXPECT_NE(before, after);
    EXPECT_FALSE(has(logged(options()), "SECRET"));
    // One that is kept elsewhere as well.
    OpenPoolOptions with = options();
    with.secret_file = folder_.path() + "/elsewhere";
    EXPECT_TRUE(has(logged(with), with.secret_file + ": was not there"));
}

TEST_F(OpenPools, ADiskWithoutRoomIsRefusedWithFiguresAndKey) {
    constexpr std::uint64_t kMib = 1 << 20;
    const auto refused_share = share_of_disk("/data/kv", 700 * kMib, 300 * kMib);
    ASSERT_EQ(refused_share.status().code(), StatusCode::resource_exhausted);
    const std::string said = refused_share.status().message();
    for (const char* part : {"/data/kv: its file system has 700 MiB free", "takes 300 MiB",
                             "500 MiB is too little", "pool.capacity_mib (at least 512)"})
        EXPECT_TRUE(has(said, part)) << said;
    EXPECT_EQ(share_of_disk("/d", 724 * kMib, 300 * kMib).value(),
              static_cast<std::int64_t>(512 * kMib));
    EXPECT_EQ(share_of_disk("/d", std::uint64_t{1} << 60, 0).value(), std::int64_t{1} << 40);
    OpenPoolOptions with = options();
    with.capacity_bytes = 100 << 20;
    EXPECT_TRUE(has(refused(with), "pool.capacity_mib is 100, a pool needs at least 512"));
}

TEST_F(OpenPools, ADirectoryOfSomethingElseIsLeftAlone) {
    fs::create_directories(dir() + "/lost+found");
    std::ofstream(dir() + "/photo.jpg") << "x";
    const std::string said = refused(options());
    EXPECT_TRUE(has(said, dir() + "\": holds no pool, and something else: \"photo.jpg\"")) << said;
    EXPECT_FALSE(fs::exists(dir() + "/SECRET"));
    fs::remove(dir() + "/photo.jpg");
    OpenPoolOptions with = options();
    with.secret_file = dir() + "/my_secret";
    with.key_directory = dir() + "/my_keys";
    std::ofstream(with.secret_file) << std::string(32, 's');
    fs::permissions(with.secret_file, fs::perms(0600));
    fs::create_directory(with.key_directory);
    fs::permissions(with.key_directory, fs::perms(0700));
    (void)logged(with);
    // In a pool that is there, other files are nobody's business.
    std::ofstream(dir() + "/photo.jpg") << "x";
    (void)logged(with);
}

TEST_F(OpenPools, OneDiskIsNotTakenForTwo) {
    OpenPoolOptions with = options();
    with.directory.clear();
    with.store = "shared";
    with.ec = "2+1";
    const std::string a = folder_.path() + "/a", b = folder_.path() + "/b";
    fs::create_directory(a);
    fs::create_directory_symlink(a, folder_.path() + "/link");
    for (const std::string& other :
         {a, a + "/", folder_.path() + "/./b/../a", folder_.path() + "/link"}) {
        with.directories = {a, b, other};
        EXPECT_TRUE(has(refused(with), "are one directory")) << other;
    }
    for (const std::string& other : {b + "/x", folder_.path()}) {
        with.directories = {a, b, other};
        EXPECT_TRUE(has(refused(with), "lie one in the other")) << other;
    }
    EXPECT_FALSE(fs::exists(b));
    with.directories = {a, b, b + "2"};
    (void)logged(with);
    EXPECT_TRUE(fs::exists(b + "2/SET"));
}

TEST_F(OpenPools, APoolOfOtherProcessesAloneIsAPool) {
    OpenPoolOptions with = options();
    with.store = "shared";
    with.writer = "host-a";
    (void)logged(with);
    EXPECT_FALSE(fs::exists(dir() + "/POOL"));
    std::ofstream(dir() + "/notes") << "x";
    with.writer = "host-b";
    (void)logged(with);
}

TEST_F(OpenPools, ALinkToNowhereIsSaid) {
    fs::create_symlink(folder_.path() + "/nowhere", dir());
    EXPECT_TRUE(has(refused(options()), "is a link to " + folder_.path() + "/nowhere"));
    EXPECT_FALSE(fs::exists(folder_.path() + "/nowhere"));
    EXPECT_TRUE(check_pool_path(folder_.path()).ok());
    EXPECT_TRUE(check_pool_path(folder_.path() + "/absent").ok());
    EXPECT_EQ(check_pool_path("").code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace fathom
