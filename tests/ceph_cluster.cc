#include "ceph_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "cli_process.h"

namespace fathom::testing {

namespace {

constexpr std::int64_t kUpUs = 120'000'000;

std::string new_uuid() {
    std::string uuid;
    std::ifstream("/proc/sys/kernel/random/uuid") >> uuid;
    return uuid;
}

// Nothing listens there, and the kernel does not give it to others soon.
int free_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const bool bound = ::bind(fd, generic, bytes) == 0 && ::getsockname(fd, generic, &bytes) == 0;
    ::close(fd);
    return bound ? ntohs(address.sin_port) : 0;
}

// The output of a program that ends by itself, or "failed: " and what it said.
std::string output_of(const std::vector<std::string>& words) {
    Child child(words);
    const int status = child.finish();
    if (status == 0) return child.out();
    return fmt::format("failed: {} ({}): {}{}", fmt::join(words, " "), status, child.out(),
                       child.err());
}

bool failed(const std::string& output) {
    return output.rfind("failed: ", 0) == 0;
}

constexpr const char* kConf = R"([global]
fsid = {fsid}
mon host = v2:127.0.0.1:{port}
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = {folder}
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
log file = {folder}/$name.log
crash dir = {folder}
mon cluster log file = {folder}/cluster.log
mon data = {folder}/mon
mon data avail warn = 1
mon data avail crit = 1
mgr data = {folder}/mgr
osd data = {folder}/osd$id
paxos propose interval = 0.1
paxos min wait = 0.02
mon osd down out interval = 3600
ms async op threads = 1
osd crush chooseleaf type = 0
osd pool default pg autoscale mode = off
osd objectstore = {store}
osd max object size = 16777216
memstore device bytes = 402653184
bluestore block size = 2147483648
bluestore cache autotune = false
bluestore cache size = 33554432
bluestore prefer deferred size = 0
bluestore prefer deferred size hdd = 0
bluestore prefer deferred size ssd = 0
osd op num shards = 1
osd op num threads per shard = 2
osd scrub during recovery = true
osd scrub sleep = 0
osd fast shutdown = true
)";

}  // namespace

bool CephCluster::installed() {
    for (const char* program : {"ceph", "ceph-mon", "ceph-osd", "monmaptool"})
        if (!std::filesystem::exists(std::string("/usr/bin/") + program)) return false;
    return true;
}

CephCluster::~CephCluster() {
    while (!daemons_.empty())
        end(daemons_.begin()->first);
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

std::string CephCluster::start(const Options& options) {
    std::string name = std::filesystem::temp_directory_path() / "fathom_ceph_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) return "no temporary folder";
    folder_ = name;
    fsid_ = new_uuid();
    port_ = free_port();
    if (std::string wrong = write_conf(options); !wrong.empty()) return wrong;
    if (std::string wrong = start_monitor(); !wrong.empty()) return wrong;
    for (int osd = 0; osd < kOsds; ++osd)
        if (std::string wrong = make_osd(osd); !wrong.empty()) return wrong;
    for (int osd = 0; osd < kOsds; ++osd)
        start_osd(osd);
    if (options.bluestore) {
        std::filesystem::create_directory(folder_ + "/mgr");
        launch("mgr.x", {"ceph-mgr", "-f", "-c", conf(), "-i", "x"});
    }
    if (!await_osds(kOsds)) return "not all OSDs came up";
    return make_pools();
}

std::string CephCluster::write_conf(const Options& options) {
    if (port_ == 0) return "no free port";
    std::ofstream(conf()) << fmt::format(
        fmt::runtime(kConf), fmt::arg("fsid", fsid_), fmt::arg("port", port_),
        fmt::arg("folder", folder_),
        fmt::arg("store", options.bluestore ? "bluestore" : "memstore"));
    return {};
}

std::string CephCluster::start_monitor() {
    const std::string map = folder_ + "/monmap";
    std::filesystem::create_directory(folder_ + "/mon");
    for (const std::vector<std::string>& words : std::initializer_list<std::vector<std::string>>{
             {"monmaptool", "--create", "--fsid", fsid_, "--addv", "a",
              fmt::format("[v2:127.0.0.1:{}]", port_), map},
             {"ceph-mon", "-c", conf(), "--mkfs", "-i", "a", "--monmap", map}})
        if (std::string out = output_of(words); failed(out)) return out;
    launch("mon.a", {"ceph-mon", "-f", "-c", conf(), "-i", "a"});
    return {};
}

std::string CephCluster::make_osd(int osd) {
    const std::string uuid = new_uuid(), number = std::to_string(osd);
    std::filesystem::create_directory(osd_folder(osd));
    if (std::string out = ceph({"osd", "new", uuid, number}); failed(out)) return out;
    if (std::string out =
            output_of({"ceph-osd", "-c", conf(), "-i", number, "--mkfs", "--osd-uuid", uuid});
        failed(out))
        return out;
    std::string out =
        ceph({"osd", "crush", "add", "osd." + number, "1.0", "root=default", "host=h" + number});
    return failed(out) ? out : std::string();
}

std::string CephCluster::make_pools() {
    for (const auto& [pool, stripe_unit] :
         {std::pair(kPool, "stripe_unit=28672"), std::pair(kSmallPool, "stripe_unit=4096")}) {
        const std::string profile = std::string(pool) + "_profile";
        for (const std::vector<std::string>& words :
             std::initializer_list<std::vector<std::string>>{
                 {"osd", "erasure-code-profile", "set", profile, "plugin=isa", "k=4", "m=2",
                  "crush-failure-domain=osd", stripe_unit},
                 {"osd", "pool", "create", pool, "16", "16", "erasure", profile}})
            if (std::string out = ceph(words); failed(out)) return out;
    }
    std::string out = ceph({"osd", "pool", "create", kIndexPool, "8", "8", "replicated"});
    return failed(out) ? out : std::string();
}

std::string CephCluster::ceph(const std::vector<std::string>& words) const {
    std::vector<std::string> all = {"ceph", "-c", conf(), "--connect-timeout", "60"};
    all.insert(all.end(), words.begin(), words.end());
    return output_of(all);
}

std::string CephCluster::rados(const std::vector<std::string>& words) const {
    std::vector<std::string> all = {"rados", "-c", conf()};
    all.insert(all.end(), words.begin(), words.end());
    return output_of(all);
}

// The child asks to be killed when the thread that starts it ends, before it is anything else.
void CephCluster::launch(const std::string& name, const std::vector<std::string>& words) {
    std::vector<char*> argv;
    std::vector<std::string> copies = words;
    for (std::string& word : copies)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string output = folder_ + "/" + name + ".out";
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int fd = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        ::dup2(fd, STDOUT_FILENO);
        ::dup2(fd, STDERR_FILENO);
        if (::getppid() == parent) ::execvp(argv[0], argv.data());
        ::_exit(127);
    }
    daemons_[name] = pid;
}

void CephCluster::end(const std::string& name) {
    const auto found = daemons_.find(name);
    if (found == daemons_.end()) return;
    if (found->second > 0) {
        ::kill(found->second, SIGKILL);
        ::waitpid(found->second, nullptr, 0);
    }
    daemons_.erase(found);
}

void CephCluster::kill_osd(int osd) {
    end("osd." + std::to_string(osd));
}

void CephCluster::start_osd(int osd) {
    const std::string number = std::to_string(osd);
    launch("osd." + number, {"ceph-osd", "-f", "-c", conf(), "-i", number});
}

void CephCluster::stop_monitor() {
    ::kill(daemons_.at("mon.a"), SIGSTOP);
}
void CephCluster::continue_monitor() {
    ::kill(daemons_.at("mon.a"), SIGCONT);
}

// By what counts as full, rising or falling in an order in which each step is allowed.
void CephCluster::set_full(bool full) const {
    if (full) {
        ceph({"osd", "set-nearfull-ratio", "0.000001"});
        ceph({"osd", "set-backfillfull-ratio", "0.000002"});
        ceph({"osd", "set-full-ratio", "0.000003"});
    } else {
        ceph({"osd", "set-full-ratio", "0.95"});
        ceph({"osd", "set-backfillfull-ratio", "0.9"});
        ceph({"osd", "set-nearfull-ratio", "0.85"});
    }
}

bool CephCluster::await_osds(int up) const {
    const std::int64_t deadline_us = real_clock().now_us() + kUpUs;
    const std::string wanted = fmt::format("{} osds: {} up", kOsds, up);
    while (real_clock().now_us() < deadline_us)
        if (ceph({"osd", "stat"}).find(wanted) != std::string::npos) return true;
    return false;
}

}  // namespace fathom::testing
